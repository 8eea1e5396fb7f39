//! A file that the kernel lets grow no more.

use std::io::Write;
use std::process::Command;

use lapis::Error;

use crate::harness::*;

const DIRECTORY: &str = "LAPIS_TEST_FULL_DISK_DIRECTORY";

/// Runs this test's executable with files of some megabytes at most; what goes beyond is an error there and no signal. The child
/// says at the end that it did so.
fn in_a_child_with_short_files(directory: &std::path::Path, child: &str, says: &str) {
    let limited = "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\"";
    let ended = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("full_disk::{child}"), "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains(says), "{said}");
}

fn fill(table: &lapis::Table) -> u32 {
    for number in 0..u32::MAX {
        match table.put(&number.to_be_bytes(), &[number as u8; 500]) {
            Ok(()) => {}
            Err(Error::Full(_)) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it was never full")
}

#[test]
#[ignore = "a child of the other test"]
fn the_child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let config = config(directory.as_ref()).durability(lapis::Durability::Eventual);
    let store = lapis::Store::open(config).unwrap();
    let table = store.create_table("t").unwrap();
    let put = fill(&table);
    assert!(put > 1000, "{put}");
    assert_eq!(table.len().unwrap(), u64::from(put), "reads go on");
    (0..put).for_each(|number| _ = table.delete(&number.to_be_bytes()).unwrap());
    store.compact().unwrap();
    assert!(fill(&table) > put / 2);
    assert!(matches!(store.create_table("another"), Err(Error::Full(_))));
    println!("filled, emptied and filled again");
}

#[test]
fn a_file_that_may_not_grow_refuses_puts_and_loses_nothing() {
    let directory = directory();
    in_a_child_with_short_files(directory.path(), "the_child", "filled, emptied and filled again");
    let store = open(directory.path());
    let table = store.table("t").unwrap();
    let there = table.len().unwrap();
    assert!(there > 500, "{there}");
    assert_sound(&store);
    table.put(b"one more", &[1; 500]).unwrap();
    assert_eq!(table.len().unwrap(), there + 1);
}

/// A value in which no piece is like another one.
fn long_value() -> Vec<u8> {
    (0..1_u32 << 20).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect()
}

#[test]
#[ignore = "a child of the other test"]
fn the_child_that_streams() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let config = config(directory.as_ref()).durability(lapis::Durability::Eventual);
    let store = lapis::Store::open(config).unwrap();
    let table = store.create_table("t").unwrap();
    let others = store.create_table("others").unwrap();
    let put = fill(&others);
    // Room for a part of the value.
    (0..put / 8).for_each(|number| _ = others.delete(&number.to_be_bytes()).unwrap());
    store.compact().unwrap();
    let value = long_value();
    let mut writer = table.writer(b"long").unwrap();
    let (mut taken, mut refused) = (0, 0);
    while taken < value.len() {
        match writer.write(&value[taken..]) {
            Ok(more) => taken += more,
            Err(error) => {
                let error = Error::from_io(error).unwrap();
                assert!(matches!(error, Error::Full(_)), "{error}");
                assert_eq!(writer.len(), taken as u64, "nothing of it was taken");
                refused += 1;
                assert_eq!(refused, 1, "there is room now");
                (0..put).for_each(|number| _ = others.delete(&number.to_be_bytes()).unwrap());
                store.compact().unwrap();
            }
        }
    }
    assert!(refused == 1 && taken > 0);
    writer.finish().unwrap();
    println!("refused once and finished");
}

#[test]
fn what_a_writer_refuses_on_a_full_disk_is_written_again_and_there_once() {
    let directory = directory();
    in_a_child_with_short_files(
        directory.path(),
        "the_child_that_streams",
        "refused once and finished",
    );
    let store = open(directory.path());
    assert!(store.table("t").unwrap().get(b"long").unwrap().unwrap() == long_value());
    assert_sound(&store);
}
