//! Random transactions against a map.

use std::collections::BTreeMap;

use lapis_engine::{Durability, TableStructure};
use proptest::prelude::*;

use crate::harness::{HASHED, Rig, contents, small};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Remove(u8),
    Scan(u8, u8),
    Commit,
    Abort,
    Checkpoint,
    PowerCut,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<u8>(), 0_u16..900).prop_map(|(key, bytes)| Step::Put(key, bytes)),
        4 => any::<u8>().prop_map(Step::Remove),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Step::Scan(from, to)),
        4 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::PowerCut),
    ]
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn run(structure: TableStructure<'_>, steps: &[Step]) {
    let mut rig = Rig::new(small());
    rig.engine.create_table_with("t", structure, None).unwrap();
    let (mut committed, mut mine) = (Map::new(), Map::new());
    let mut transaction = rig.engine.begin().unwrap();
    let mut table = rig.engine.table("t").unwrap();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Put(key, bytes) => {
                let value = vec![number as u8; bytes.into()];
                transaction.put(&table, &[key], &value).unwrap();
                mine.insert(vec![key], value);
            }
            Step::Remove(key) => {
                let present = transaction.remove(&table, &[key]).unwrap();
                assert_eq!(present, mine.remove([key].as_slice()).is_some());
            }
            Step::Scan(from, to) => {
                let range = vec![from.min(to)]..=vec![from.max(to)];
                let found = transaction.range(&table, range.clone()).unwrap();
                let found: Vec<_> = found.map(Result::unwrap).collect();
                let expected: Vec<_> =
                    mine.range(range).map(|(key, value)| (key.clone(), value.clone())).collect();
                assert_eq!(found, expected);
            }
            Step::Commit => {
                transaction.commit(Durability::Immediate).unwrap();
                committed = mine.clone();
                transaction = rig.engine.begin().unwrap();
            }
            Step::Abort => {
                mine = committed.clone();
                transaction = rig.engine.begin().unwrap();
            }
            Step::Checkpoint => rig.engine.checkpoint().unwrap(),
            Step::PowerCut => {
                drop(transaction);
                rig = rig.after_power_cut();
                table = rig.engine.table("t").unwrap();
                mine = committed.clone();
                transaction = rig.engine.begin().unwrap();
                let found: Map = contents(&rig.engine, "t").into_iter().collect();
                assert_eq!(found, committed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn random_transactions_do_what_a_map_does(
        is_hashed in any::<bool>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(if is_hashed { HASHED } else { TableStructure::default() }, &steps);
    }
}
