//! A file that the kernel lets grow no more.

use std::process::Command;

use lapis::Error;

use crate::harness::*;

const DIRECTORY: &str = "LAPIS_TEST_FULL_DISK_DIRECTORY";

/// Runs this test's executable with files of some megabytes at most; what goes beyond is an error there and no signal.
fn in_a_child_with_short_files(directory: &std::path::Path) {
    let limited = "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\"";
    let ended = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::the_child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("filled, emptied and filled again"), "{said}");
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
    in_a_child_with_short_files(directory.path());
    let store = open(directory.path());
    let table = store.table("t").unwrap();
    let there = table.len().unwrap();
    assert!(there > 500, "{there}");
    assert_sound(&store);
    table.put(b"one more", &[1; 500]).unwrap();
    assert_eq!(table.len().unwrap(), there + 1);
}
