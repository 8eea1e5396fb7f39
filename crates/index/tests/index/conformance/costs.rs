//! The costs that the capability table states, and those of doing nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lapis_index::{InsertCost, KeyKind, capability_table};

use super::harness::{Keys, Tested};
use crate::counted::Counted;

fn counted<K: Keys + ?Sized>(tested: Tested) -> Counted<K> {
    Counted::with(tested.kind, &tested.default_options())
}

/// More than half of all inserts cost what the table says.
pub fn inserts_cost_what_the_table_says<K: Keys + ?Sized>(tested: Tested) {
    let index = counted::<K>(tested);
    let mut seen: BTreeMap<(u64, u64), u32> = BTreeMap::new();
    for number in 0..4000u64 {
        let key = K::number(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let cost = index.insert(K::borrow(&key));
        if number >= 1000 {
            *seen.entry(cost).or_default() += 1;
        }
    }
    let (usual, times) = seen.iter().max_by_key(|(_, times)| **times).unwrap();
    let row = capability_table()
        .into_iter()
        .find(|row| row.kind == tested.kind)
        .expect("every structure has its row");
    let stated = match K::KIND {
        KeyKind::Fixed8 => row.insert_u64,
        KeyKind::Bytes => row.insert_bytes,
    };
    // A cost that most inserts have; none if there is no such cost.
    let measured = (*times > seen.values().sum::<u32>() / 2)
        .then_some(InsertCost { flushed_lines: usual.0, fences: usual.1 });
    assert_eq!(stated, measured, "{seen:?}");
}

pub fn what_changes_nothing_costs_nothing<K: Keys + ?Sized>(tested: Tested) {
    let index = counted::<K>(tested);
    let keys = [1, 2].map(K::number);
    let [present, absent] = keys.each_ref().map(K::borrow);
    let _ = index.insert(present);
    let nothing = index.cost(|index| {
        assert_eq!(index.insert(present, 2).unwrap().previous, Some(1));
        assert_eq!(index.update(absent, 2).unwrap().previous, None);
        assert_eq!(index.remove(absent).unwrap().previous, None);
        assert_eq!((index.get(present), index.get(absent)), (Some(1), None));
        index.for_each(&mut |_, _| ControlFlow::Continue(()));
        assert_eq!(index.check(), [""; 0]);
    });
    assert_eq!(nothing, (0, 0));
}
