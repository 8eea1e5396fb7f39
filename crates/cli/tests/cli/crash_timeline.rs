//! A violation is told step by step and can be shown again by the command that it prints.

use serde_json::Value;

use crate::runner::{Scene, run, text};

/// The arguments of a printed command, of which one may be in single quotes.
fn arguments(command: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 {
            arguments.push(part.to_owned());
        } else {
            arguments.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    assert_eq!(arguments.remove(0), "lapis");
    arguments
}

/// The name of some flush of WORT.
fn flush() -> String {
    let report = run(["crash", "wort", "--ops", "6", "--persist-points", "--json"]).json();
    let rows = report["persist_points"].as_array().unwrap();
    let killed = |row: &&Value| row["killed"] == true;
    let names = rows.iter().filter(killed).filter_map(|row| row["name"].as_str());
    names.into_iter().find(|name| name.ends_with(" flush")).unwrap().to_owned()
}

#[test]
fn a_violation_shrinks_to_a_case_that_its_command_shows_again() {
    let (scene, flush) = (Scene::new(), flush());
    let page = scene.path("timeline.html");
    let outcome =
        run(["crash", "wort", "--ops", "30", "--without", &flush, "--html", text(&page), "--json"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let report = outcome.json();
    let shrunk = &report["violations"][0]["shrunk"];
    assert!(shrunk["operations"].as_array().unwrap().len() <= 3, "{shrunk}");
    assert!(!shrunk["timeline"].as_array().unwrap().is_empty());
    assert!(std::fs::read_to_string(&page).unwrap().contains("the power is cut"));

    let mut again = arguments(shrunk["replay"].as_str().unwrap());
    again.push("--json".to_owned());
    let outcome = run(&again);
    assert_eq!(outcome.code, Some(1), "{again:?}");
    assert_eq!(outcome.json()["violations"][0]["what"], shrunk["what"]);
}

#[test]
fn a_violation_of_several_workers_is_shrunk_drawn_and_shown_again_too() {
    let scene = Scene::new();
    let page = scene.path("timeline.html");
    let mutant = "wort/missing-leaf-flush";
    let explored = ["crash", "wort:u64", "--workers", "2", "--ops", "6", "--schedules", "20"];
    let outcome =
        run(explored.into_iter().chain(["--mutant", mutant, "--html", text(&page), "--json"]));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let report = outcome.json();
    let shrunk = &report["violations"][0]["shrunk"];
    assert_eq!(shrunk["operations"].as_array().unwrap().len(), 1, "{shrunk}");
    assert_eq!(shrunk["history"]["workers"], 1);
    assert!(shrunk["timeline"][0]["worker"].is_u64());
    assert!(std::fs::read_to_string(&page).unwrap().contains("<th>worker</th>"));

    let mut again = arguments(shrunk["replay"].as_str().unwrap());
    again.push("--json".to_owned());
    let outcome = run(&again);
    assert_eq!(outcome.code, Some(1), "{again:?}");
    let report = outcome.json();
    assert_eq!(report["violations"][0]["what"], shrunk["what"]);
    assert_eq!((&report["images"], &report["schedules"]), (&1.into(), &1.into()));
}

/// Of this seed a history that is not one of many begins with a power cut.
#[test]
fn a_violation_of_a_schedule_with_few_deviations_is_shown_again_without_a_cut_before_it() {
    let explored =
        ["crash", "wort:u64", "--workers", "2", "--deviations", "1", "--schedules", "200"];
    let rest = ["--seed", "4", "--mutant", "wort/missing-leaf-flush", "--json"];
    let outcome = run(explored.into_iter().chain(rest));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let violation = &outcome.json()["violations"][0];
    for told in [violation, &violation["shrunk"]] {
        let mut again = arguments(told["replay"].as_str().unwrap());
        again.push("--json".to_owned());
        let outcome = run(&again);
        assert_eq!(outcome.code, Some(1), "{again:?}: {}", outcome.stderr);
        let report = outcome.json();
        assert_eq!(
            (&report["violations"][0]["what"], &report["after_a_cut"]),
            (&told["what"], &0.into())
        );
    }
}

#[test]
fn a_flush_that_does_not_exist_is_refused() {
    let outcome = run(["crash", "wort", "--ops", "3", "--without", "nowhere.rs:1:1 flush"]);
    assert!(outcome.sentence(2).contains("no flush or fence called"), "{outcome:?}");
}

#[test]
fn an_unknown_strategy_is_refused() {
    let outcome = run(["crash", "wort", "--strategy", "lucky"]);
    assert!(outcome.sentence(2).contains("lucky"), "{outcome:?}");
}
