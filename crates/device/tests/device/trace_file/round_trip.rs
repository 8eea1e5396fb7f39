//! What is written comes back.

use lapis_device::trace_file::{Ending, RecordedTrace};
use lapis_device::{Config, Marker, Modelled};
use lapis_pmem::{PCell, Pool, Region};
use proptest::prelude::*;

use crate::trace_file::harness::{read, records, specimen, written};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_come_back(records in records()) {
        let (found, ending) = read(&written(&records));
        prop_assert_eq!(found, records);
        prop_assert_eq!(ending.unwrap(), Ending::Complete);
    }

    #[test]
    fn a_trace_that_was_read_is_the_same_when_it_is_written_and_read_again(records in records()) {
        let first = RecordedTrace::read(written(&records).as_slice()).unwrap();
        let file = first.write(Vec::new()).unwrap();
        prop_assert_eq!(RecordedTrace::read(file.as_slice()).unwrap(), first);
    }
}

#[test]
fn one_of_everything_comes_back() {
    let specimen = specimen();
    let file = specimen.write(Vec::new()).unwrap();
    assert_eq!(RecordedTrace::read(file.as_slice()).unwrap(), specimen);
}

#[test]
fn a_trace_of_the_model_comes_back_with_its_base_and_is_compact() {
    let bytes = 1 << 20;
    let region = Region::anonymous(bytes, bytes).unwrap();
    // SAFETY: mapped, that long, and nobody else's.
    let memory = unsafe { std::slice::from_raw_parts_mut(region.base(), bytes) };
    memory.fill(0xA5);
    memory[5000] = 1;
    let base = memory.to_vec();
    let domain = Modelled::over(&region, Config::tracing());
    domain.mark(Marker::Begin(0));
    // SAFETY: the region outlives the pool, and only the pool uses it.
    let pool = Pool::create(unsafe { region.alias() }, domain.clone()).unwrap();
    let mut node = pool.allocate_with_tail::<PCell<u64>>(3000).unwrap();
    node.write_tail(0, &[3; 3000]);
    let node = pool.fence(node.flush());
    let _ = pool.publish_root("node", 1, node).unwrap().persist();
    domain.mark(Marker::End(0));
    drop(pool);
    let trace = domain.take_trace().in_units();
    let mut laid = vec![0; bytes];
    let recorded = RecordedTrace::of_run(trace.clone(), &base);
    recorded.lay_base(&mut laid);
    assert!(laid == base, "the base differs");
    let file = recorded.write(Vec::new()).unwrap();
    let again = RecordedTrace::read(file.as_slice()).unwrap();
    assert_eq!(again.trace.events.len(), trace.events.len());
    assert_eq!(again.base, recorded.base);
    for (position, (found, expected)) in again.trace.events.iter().zip(&trace.events).enumerate() {
        use lapis_device::Event::{Fence, Flush};
        match (found, expected) {
            // Points are numbered anew, in the order of their first use.
            (Flush { point: a, line: x, .. }, Flush { point: b, line: y, .. }) => {
                assert_eq!(x, y);
                assert_eq!(again.trace.points[usize::from(*a)], trace.points[usize::from(*b)]);
            }
            (Fence { point: a, .. }, Fence { point: b, .. }) => {
                assert_eq!(again.trace.points[usize::from(*a)], trace.points[usize::from(*b)]);
            }
            _ => assert_eq!(found, expected, "event {position}"),
        }
    }
    let in_memory = trace.events.len() * 16 + bytes;
    assert!(file.len() * 4 < in_memory, "{} bytes for {in_memory}", file.len());
}
