//! ycsb, replay and the laboratory.

use crate::runner::{Scene, run, text};

#[test]
fn ycsb_on_a_directory_finds_its_records_again() {
    let scene = Scene::new();
    let small = ["--records", "300", "--operations", "200"];
    scene.run(["ycsb", "--workload", "load,a,e,f"].iter().chain(&small)).good();
    scene.run(["ycsb", "--workload", "c,d"].iter().chain(&small)).good();
    assert_eq!(scene.run(["check"]).code, Some(0));
}

#[test]
fn ycsb_refuses_a_table_of_something_else() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    scene.run(["ycsb", "--table", "main", "--records", "10"]).sentence(2);
}

#[test]
fn an_unknown_workload_is_refused() {
    let outcome = run(["ycsb", "--workload", "load,z"]);
    assert!(outcome.sentence(2).contains("`z` is not a value of --workload"), "{outcome:?}");
}

#[test]
fn a_replay_compares_every_answer() {
    let scene = Scene::new();
    let trace = "version,time,op,size,lbn\n1,1,2a,512,7\n1,2,28,512,7\n1,3,2a,4096,8\n";
    let file = scene.file("trace.csv", trace);
    let report = run(["replay", text(&file), "--json"]).json();
    assert_eq!((&report["records"], &report["operations"]), (&2.into(), &3.into()));
    assert_eq!((&report["verified"], &report["mismatches"]), (&3.into(), &0.into()));
}

#[test]
fn a_bad_trace_is_refused_by_line() {
    let scene = Scene::new();
    let file = scene.file("trace.csv", "version,time,op,size,lbn\n1,1,99,512,7\n");
    assert!(run(["replay", text(&file)]).sentence(2).contains("line 2"));
    let empty = scene.file("empty.csv", "");
    assert!(run(["replay", text(&empty)]).sentence(2).contains("no requests"));
}

#[test]
fn an_exploration_is_the_same_every_time() {
    let explore = || {
        let arguments = ["crash", "wort", "--ops", "8", "--seed", "3", "--images", "0", "--json"];
        let mut report = run(arguments).json();
        for measured in ["seconds", "images_per_s"] {
            report.as_object_mut().unwrap().remove(measured);
        }
        report
    };
    assert_eq!(explore(), explore());
}

#[test]
fn one_image_can_be_tried_alone() {
    let report = run(["crash", "wort", "--ops", "5", "--at", "40", "--image", "-", "--json"]);
    assert!(matches!(report.code, Some(0 | 2)), "{report:?}");
}
