//! Help, completions, manual pages.

use crate::runner::{Scene, finish, run, text};

#[test]
fn help_lists_what_people_want_to_do_and_each_command_there_exists() {
    let help = run(["help"]).good_text();
    assert!(help.contains("To keep data:"), "{help}");
    for line in help.lines().filter(|line| line.starts_with("  lapis ")) {
        let command = line.split_whitespace().nth(1).unwrap();
        let more = run(["help", command]).good_text();
        assert!(more.contains("Usage: lapis"), "{command}: {more}");
    }
    let of_lab = run(["help", "lab", "log"]).good_text();
    assert!(of_lab.contains("lapis lab log"), "{of_lab}");
    let nothing = run(["help", "nothing"]);
    assert_eq!(nothing.sentence(2), "there is no command `nothing`; `lapis --help` lists them");
    let nothing = run(["help", "lab", "nothing"]);
    assert_eq!(
        nothing.sentence(2),
        "there is no command `lab nothing`; `lapis lab --help` lists them"
    );
}

#[test]
fn a_narrow_terminal_gets_a_line_for_each_cell_and_a_serial_one_plain_characters() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    let info = |variable, value| {
        let mut command = scene.command(["info"]);
        command.env_remove("COLUMNS").env(variable, value);
        finish(command, b"").good_text()
    };
    let narrow = info("COLUMNS", "20");
    assert!(narrow.contains("\nholds: pages\nmedium: ") && !narrow.contains('│'), "{narrow}");
    let serial = info("TERM", "dumb");
    assert!(serial.contains("| pages |") && serial.is_ascii(), "{serial}");
}

#[test]
fn shells_are_told_the_commands() {
    for shell in ["bash", "fish", "zsh"] {
        let script = run(["completions", shell]).good_text();
        assert!(script.contains("import") && script.contains("on-duplicate"), "{shell}");
    }
    assert!(run(["completions", "abacus"]).sentence(2).contains("bash"));
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    assert!(run(["man"]).good_text().starts_with(".ie"));
    let scene = Scene::new();
    let directory = scene.path("man1");
    std::fs::create_dir(&directory).unwrap();
    run(["man", "--into", text(&directory)]).good();
    for page in ["lapis.1", "lapis-import.1", "lapis-lab-log.1"] {
        assert!(directory.join(page).is_file(), "{page}");
    }
    run(["man", "--into", "/nonexistent"]).sentence(2);
}
