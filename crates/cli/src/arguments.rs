//! The command line's grammar, and its errors as single sentences.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::commands::{
    backup, check, compact, crash, delete, demo, export, get, import, info, lab, manual, put,
    replay, scan, trace, ycsb,
};
use crate::failure::Failure;
use crate::output::closed;

/// A storage engine and laboratory for persistent memory.
#[derive(Debug, Parser)]
#[command(
    name = "lapis",
    version,
    about = "A storage engine and laboratory for persistent memory",
    disable_help_subcommand = true,
    after_long_help = "\
Examples:
  lapis demo                                          the guided run, about a minute
  lapis import --dir /tmp/store packages.tsv          load key TAB value lines
  lapis get --dir /tmp/store bash
  lapis crash wort                                    explore the power cuts WORT must survive
  lapis lab index --index wort,fast-fair --json       compare indexes, measured and modelled

Exit codes: 0 done; 1 a check failed or what was asked for is not there; 2 bad input or an error,
which standard error says in one sentence. LAPIS_LOG=debug (or -vv) shows the log."
)]
pub struct Arguments {
    /// Print one JSON object instead of text for people
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to standard error (-vv: still more); LAPIS_LOG overrides
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Arguments),
    Import(import::Arguments),
    Export(export::Arguments),
    Get(get::Arguments),
    Put(put::Arguments),
    Delete(delete::Arguments),
    Scan(scan::Arguments),
    Info(info::Arguments),
    Check(check::Arguments),
    Backup(backup::BackupArguments),
    Restore(backup::RestoreArguments),
    Compact(compact::Arguments),
    Ycsb(ycsb::Arguments),
    Replay(replay::Arguments),
    Crash(Box<crash::Arguments>),
    Trace(trace::Arguments),
    Lab(lab::Arguments),
    Help(manual::HelpArguments),
    Completions(manual::CompletionArguments),
    Man(manual::ManArguments),
    #[command(hide = true, name = "demo-worker")]
    DemoWorker(demo::WorkerArguments),
}

/// Parses the command line. None if it asked for help or the version, which has then been printed.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Option<Arguments>, Failure> {
    match Arguments::try_parse_from(words) {
        Ok(arguments) => Ok(Some(arguments)),
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            let text = error.render().to_string();
            io::stdout().write_all(text.as_bytes()).map_err(|error| closed(&error))?;
            Ok(None)
        }
        Err(error) => Err(Failure::refused(sentence(&error))),
    }
}

/// The command whose usage an error shows, as words below `lapis`.
fn command_of(error: &clap::Error) -> Vec<String> {
    let text = error.render().to_string();
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: lapis")).unwrap_or_default();
    let is_name = |word: &&str| word.starts_with(|first: char| first.is_ascii_lowercase());
    usage.split_whitespace().take_while(is_name).map(str::to_owned).collect()
}

fn below(above: &[String], name: &str) -> String {
    above.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(" ")
}

/// What lists the commands below this one.
fn lister(above: &[String]) -> String {
    format!("lapis {}", below(above, "--help"))
}

/// What is said of a command that there is not below this one.
pub fn no_command(above: &[String], name: &str) -> String {
    format!("there is no command `{}`; `{}` lists them", below(above, name), lister(above))
}

/// What is wrong with the command line, and what to do about it.
fn sentence(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        Some(ContextValue::StyledStr(text)) => Some(text.to_string()),
        _ => None,
    };
    let argument = || context(ContextKind::InvalidArg).unwrap_or_else(|| "an argument".into());
    match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("name a command; `{}` lists them", lister(&command_of(error)))
        }
        ErrorKind::InvalidSubcommand => {
            let name = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            let above = command_of(error);
            match context(ContextKind::SuggestedSubcommand) {
                Some(near) => {
                    let near = below(&above, &near);
                    format!(
                        "there is no command `{}`; did you mean `{near}`?",
                        below(&above, &name)
                    )
                }
                None => no_command(&above, &name),
            }
        }
        ErrorKind::UnknownArgument => match context(ContextKind::SuggestedArg) {
            Some(near) => {
                format!("`{}` is not an argument here; did you mean `{near}`?", argument())
            }
            None => format!(
                "`{}` is not an argument here; add --help to see those that are",
                argument()
            ),
        },
        ErrorKind::MissingRequiredArgument => format!("give {}; add --help to see how", argument()),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            if value.is_empty() {
                return format!("give a value for {}", argument());
            }
            let why = std::error::Error::source(error).map(ToString::to_string);
            match (context(ContextKind::ValidValue), why) {
                (Some(valid), _) => {
                    format!("`{value}` is not a value of {}; use one of {valid}", argument())
                }
                (None, Some(why)) => format!("`{value}` is not a value of {}: {why}", argument()),
                (None, None) => format!("`{value}` is not a value of {}", argument()),
            }
        }
        ErrorKind::ArgumentConflict => {
            let other = context(ContextKind::PriorArg).unwrap_or_else(|| "another argument".into());
            if other == argument() {
                format!("{other} is given twice; give it once")
            } else {
                format!("{} cannot be used with {other}; leave one of them out", argument())
            }
        }
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            format!("{}; add --help to see how", first.trim_start_matches("error: "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(words: &[&str]) -> String {
        match parse(words.iter().map(OsString::from)) {
            Err(failure) => failure.sentence().unwrap(),
            Ok(_) => panic!("accepted"),
        }
    }

    #[test]
    fn the_grammar_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn wrong_commands_and_arguments_are_one_sentence_with_a_way_out() {
        assert_eq!(refusal(&["lapis"]), "name a command; `lapis --help` lists them");
        assert_eq!(refusal(&["lapis", "gett"]), "there is no command `gett`; did you mean `get`?");
        assert_eq!(
            refusal(&["lapis", "check", "--dirr", "x"]),
            "`--dirr` is not an argument here; did you mean `--dir`?"
        );
        assert_eq!(refusal(&["lapis", "get", "k"]), "give --dir <DIR>; add --help to see how");
    }

    #[test]
    fn a_command_that_is_missing_or_wrong_below_another_is_looked_up_there() {
        assert_eq!(refusal(&["lapis", "lab"]), "name a command; `lapis lab --help` lists them");
        assert_eq!(
            refusal(&["lapis", "lab", "nonsense"]),
            "there is no command `lab nonsense`; `lapis lab --help` lists them"
        );
        assert_eq!(
            refusal(&["lapis", "lab", "indx"]),
            "there is no command `lab indx`; did you mean `lab index`?"
        );
    }

    /// It is wrapped where it is printed, and what is longer than the line is broken twice.
    #[test]
    fn no_line_below_the_options_of_a_help_text_is_longer_than_is_printed() {
        fn check(command: &clap::Command) {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            for text in texts.into_iter().flatten() {
                for line in text.to_string().lines() {
                    let columns = line.chars().count();
                    assert!(columns <= 100, "{}: {columns} columns: {line}", command.get_name());
                }
            }
            command.get_subcommands().for_each(check);
        }
        use clap::CommandFactory;
        check(&Arguments::command());
    }

    #[test]
    fn wrong_values_say_what_would_be_right() {
        let sentence = refusal(&["lapis", "lab", "index", "--index", "btree"]);
        assert_eq!(
            sentence,
            "`btree` is not a value of --index <LIST>; use one of wort, fast-fair, p-clht, \
             woart, art-cow, wb-tree, wb-tree-slot, nv-tree, fptree, p-art, p-hot, \
             p-masstree, p-bwtree, cceh, level-hash"
        );
        let sentence = refusal(&["lapis", "scan", "--dir", "d", "--limit", "x"]);
        assert_eq!(sentence, "`x` is not a value of --limit <N>: invalid digit found in string");
    }
}
