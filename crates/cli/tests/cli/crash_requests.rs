//! `lapis crash` never says that there is no violation where it has tried nothing, and leaves no option
//! out silently.

use crate::runner::{Scene, run, text};

fn refused(arguments: &[&str], expected: &str) {
    let outcome = run([&["crash"], arguments].concat());
    assert!(outcome.sentence(2).contains(expected), "{arguments:?}: {outcome:?}");
    assert!(outcome.stdout.is_empty(), "{arguments:?}: {outcome:?}");
}

#[test]
fn a_replay_of_a_crash_that_there_is_not_is_refused() {
    let few = ["wort", "--ops", "3"];
    let at = |position, image| [&few[..], &["--at", position, "--image", image]].concat();
    refused(
        &at("99999999", "0"),
        "no power cut after 99999999 events leaves such an image of wort",
    );
    refused(&at("5000", "7,7,7"), "no power cut after 5000 events");
    let workers = ["wort:u64", "--workers", "2", "--at", "99999", "--image", "0"];
    refused(&workers, "no power cut after 99999 events");
}

#[test]
fn operations_to_keep_that_there_are_not_are_refused() {
    refused(&["wort:u64", "--ops", "5", "--keep", "999"], "there is no operation 999");
    refused(&["wort:u64", "--ops", "5", "--keep", "2,0"], "numbered from 1 to 5");
    refused(&["wort:u64", "--workers", "2", "--keep", "13"], "numbered from 1 to 12");
    refused(&["wort:u64", "--workers", "2", "--keep-before", "0"], "there is no operation 0");
}

#[test]
fn amounts_that_leave_nothing_to_explore_or_too_much_are_refused() {
    refused(&["wort", "--workers", "2", "--schedules", "0"], "`0` is not a value of --schedules");
    refused(&["wort", "--workers", "2", "--ops", "0"], "give 1 to 128");
    refused(&["wort", "--workers", "2", "--ops", "129"], "give 1 to 128");
    refused(&["wort", "--workers", "2", "--schedule", "9x5"], "of 2 workers the last is 1");
    refused(&["wort", "--ops", "18446744073709551615"], "is not a value of --ops");
    refused(&["wort", "--threads", "60000"], "is not a value of --threads");
}

#[test]
fn options_that_mean_nothing_beside_others_are_refused() {
    refused(&["wort", "--budget", "5s"], "--budget means something with --all only");
    refused(&["wort", "--structure", "wort"], "--structure means something with --mutants only");
    refused(&["wort", "--row", "WORT"], "--row means something with --rates only");
    refused(&["wort", "--recover", "true"], "--recover means something with --trace FILE only");
    refused(&["--all", "--workers", "3"], "cannot be used with");
    refused(&["--mutants", "--workers", "3"], "cannot be used with");
    refused(&["--trace", "x", "--workers", "3"], "cannot be used with");
    refused(&["--trace", "x", "--keep", "1"], "cannot be used with");
    let mutant = ["--mutant", "wort/missing-leaf-flush"];
    refused(&[&["wort", "--record", "x"], &mutant[..]].concat(), "cannot be used with");
    refused(&[&["wort", "--performance"], &mutant[..]].concat(), "cannot be used with");
    refused(&["wort", "--persist-points", "--images", "9"], "cannot be used with");
    refused(&["wort", "--filled", "9", "--record", "x"], "cannot be used with");
    refused(&["--all", "--filled", "9"], "cannot be used with");
}

#[test]
fn an_unknown_run_is_refused_with_those_that_there_are_of_several_workers_too() {
    refused(&["store:nope"], "store:ssd");
    refused(&["store:nope"], "store:reading-in-transaction");
    refused(&["wort:nope"], "wort:unlinking");
    let help = run(["crash", "--help"]).good_text();
    assert!(help.contains("an unknown RUN lists them"), "{help}");
}

#[test]
fn a_flush_that_there_is_not_is_refused_with_those_of_that_file() {
    let file = "crates/index/src/wort/change.rs";
    // As the help text has it.
    let asked = format!("{file}:LINE:COLUMN flush");
    let refusal = run(["crash", "wort:u64", "--ops", "3", "--without", &asked]);
    let sentence = refusal.sentence(2);
    let (_, names) = sentence.split_once("; there are ").unwrap();
    let one = names.split(", ").find(|name| name.ends_with(" flush")).unwrap();
    assert!(one.starts_with(file), "{sentence}");
    assert_ne!(run(["crash", "wort:u64", "--ops", "3", "--without", one]).code, Some(2), "{one}");
    refused(
        &["wort:u64", "--ops", "3", "--without", "nope"],
        "`lapis crash wort --persist-points` lists them",
    );
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_anything_is_explored() {
    let scene = Scene::new();
    let page = scene.path("nowhere/x.html");
    refused(&["wort", "--ops", "3", "--html", text(&page)], "cannot write");
    refused(&["wort", "--ops", "3", "--html", text(&scene.path(""))], "cannot write");
    refused(&["wort", "--ops", "3", "--csv", text(&scene.path(""))], "cannot write");
    let unneeded = scene.path("x.html");
    run(["crash", "wort", "--images", "50", "--html", text(&unneeded)]).good_text();
    assert!(!unneeded.exists(), "there was no violation");
}

#[test]
fn hardly_any_images_are_not_said_to_show_that_there_is_no_violation() {
    let said = run(["crash", "wort:u64", "--images", "1"]).good_text();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("nothing found in ") && !said.contains("no violation"), "{said}");
    assert!(said.contains("never passed: crates/index/src/"), "{said}");
}

#[test]
fn keys_beforehand_are_of_indexes() {
    refused(&["rawl", "--filled", "10"], "--filled is of indexes");
}

#[test]
fn optimisations_are_of_indexes() {
    let expected = "--optimisations is of indexes, and rawl is none";
    refused(&["rawl", "--optimisations", "none"], expected);
}

#[test]
fn an_error_that_a_structure_cannot_commit_is_refused() {
    for [structure, mutant, owner] in [
        ["wort", "p-clht/double-free", "p-clht"],
        ["wort:u64", "store/parts-lost", "store"],
        ["wb-tree", "wb-tree-slot/missing-entry-flush", "wb-tree-slot"],
        ["store", "p-clht/double-free", "p-clht"],
        ["allocator", "wort/missing-leaf-flush", "wort"],
        ["cow-cell", "pop-log/no-zeroing", "pop-log"],
    ] {
        let expected = format!("{mutant} is an error of {owner}, which ");
        refused(&[structure, "--mutant", mutant], &expected);
        refused(&[structure, "--workers", "2", "--mutant", mutant], &expected);
    }
}

#[test]
fn an_error_of_what_a_structure_is_made_of_is_committed() {
    for [structure, part] in [
        ["wort", "allocator/"],
        ["log-cell", "pop-log/"],
        ["store", "block-log/"],
        ["store", "page-mulog/"],
        ["store", "wort/"],
    ] {
        let mutant = mutant_of(part);
        let commits = ["crash", structure, "--ops", "3", "--images", "1", "--mutant", &mutant];
        let outcome = run(commits);
        assert!(matches!(outcome.code, Some(0 | 1)), "{structure} {mutant}: {outcome:?}");
    }
}

/// The first mutant whose name begins so, of those that the refusal of another lists.
fn mutant_of(part: &str) -> String {
    let outcome = run(["crash", "wort", "--mutant", "nothing"]);
    let mut names = outcome.sentence(2).split([' ', ',']);
    names.find(|name| name.starts_with(part)).unwrap().to_owned()
}

#[test]
fn a_power_cut_that_the_run_begins_with_is_in_one_of_its_operations() {
    refused(&["wort", "--ops", "30", "--cut-in", "31"], "there is no operation 31");
    refused(&["wort", "--cut-in", "0"], "0 is not in 1..");
    refused(&["wort", "--cut-in", "3", "--workers", "2"], "cannot be used with");
    let said = run(["crash", "wort:u64", "--ops", "30", "--cut-in", "12"]).good_text();
    assert!(said.lines().last().unwrap().starts_with("no violation; "), "{said}");
}

#[test]
fn structures_that_there_was_no_time_for_are_no_success_in_the_last_line() {
    let said = run(["crash", "--all", "--budget", "1ms"]).good_text();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("no violation in the ") && last.ends_with("raise --budget"), "{said}");
}

#[test]
fn structures_that_had_an_image_each_are_not_said_to_have_no_violation() {
    let said = run(["crash", "--all", "--budget", "2s"]).good_text();
    assert!(said.contains("not one seed to its end of ") && said.contains("wort"), "{said}");
    assert!(!said.lines().any(|line| line == "no violation"), "{said}");
}

#[test]
fn what_no_run_passes_is_said_not_to_have_been_switched_off() {
    let said = run(["crash", "rawl", "--ops", "40", "--persist-points"]).good_text();
    assert!(said.contains("never passed, so not tried: crates/blocks/src/"), "{said}");
    let count = said.lines().find(|line| line.ends_with("shown to be necessary")).unwrap();
    let words: Vec<_> = count.split(' ').collect();
    assert!(words[1].parse::<usize>().unwrap() < words[3].parse().unwrap(), "{count}");
}

#[test]
fn an_image_that_was_asked_for_is_said_to_be_survived_and_nothing_else() {
    let point = ["crash", "wort:u64", "--ops", "30", "--at", "576", "--image", "0"];
    assert_eq!(run(point).good_text().lines().last(), Some("this case is survived"));
}
