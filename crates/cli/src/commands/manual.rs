//! `lapis help`, `completions` and `man`: what there is, for people and for shells.

use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments;
use crate::failure::{Failure, Verdict};
use crate::output::{self, Output};

/// What people want to do, and how.
const TASKS: &[(&str, &[(&str, &str)])] = &[
    (
        "see what this is",
        &[("lapis demo", "load, kill, recover, cut the power, count; about a minute")],
    ),
    (
        "keep data",
        &[
            ("lapis put --dir DIR KEY VALUE", "and get, delete, scan"),
            (
                "lapis import --dir DIR FILE",
                "tab-separated, CSV or JSON lines; resumes after a kill",
            ),
            ("lapis export --dir DIR", "what import takes back exactly"),
            ("lapis info --dir DIR", "what survives what on this medium, and why"),
            ("lapis check --dir DIR", "is everything as it must be?"),
            ("lapis backup --dir DIR FILE", "and restore: one state, while others go on"),
            ("lapis export --dir DIR --salvage", "what can be read of a store that is damaged"),
            ("lapis compact --dir DIR", "give the end of the file back"),
        ],
    ),
    (
        "put a store to work",
        &[
            ("lapis ycsb --workload load,a,b", "the core workloads of YCSB, every answer checked"),
            ("lapis replay TRACE", "a block trace"),
        ],
    ),
    (
        "know whether a structure survives a power cut",
        &[
            ("lapis crash wort", "every power cut that its operations may meet"),
            ("lapis crash p-clht --workers 3", "with several threads at work"),
            ("lapis crash wort --persist-points", "is each flush and fence necessary?"),
            ("lapis crash --trace FILE", "a C or C++ program of yours"),
        ],
    ),
    (
        "know what a structure costs",
        &[
            ("lapis lab index --index wort,fptree", "speed here, traffic on a modelled device"),
            ("lapis lab log", "and page, inplace, coroutine: the building blocks"),
            ("lapis lab device", "how far the modelled device is to be believed"),
        ],
    ),
];

/// Say what can be done, by task or by command
#[derive(Debug, Args)]
pub struct HelpArguments {
    /// A command
    command: Vec<String>,
}

impl HelpArguments {
    /// Runs `lapis help`.
    pub fn run(&self, output: &mut Output) -> Result<Verdict, Failure> {
        if self.command.is_empty() {
            for (task, ways) in TASKS {
                output.line(format_args!("To {task}:"))?;
                for (command, what) in *ways {
                    let line = format!("  {command:<38} {what}");
                    match output::columns() {
                        Some(columns) if line.len() > usize::from(columns) => {
                            output.line(format_args!("  {command}\n    {what}"))?;
                        }
                        _ => output.line(line)?,
                    }
                }
                output.line("")?;
            }
            output.line("`lapis help COMMAND` says more; `lapis --help` lists the commands.")?;
            return Ok(Verdict::Good);
        }
        let mut command = arguments::Arguments::command();
        command.build();
        for (depth, name) in self.command.iter().enumerate() {
            let found = command.find_subcommand(name).cloned();
            let above = &self.command[..depth];
            command = found.ok_or_else(|| Failure::refused(arguments::no_command(above, name)))?;
        }
        let text: StyledStr = command.render_long_help();
        output.line(text)?;
        Ok(Verdict::Good)
    }
}

/// Print what a shell needs to complete commands
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis completions bash > ~/.local/share/bash-completion/completions/lapis
  lapis completions fish > ~/.config/fish/completions/lapis.fish")]
pub struct CompletionArguments {
    /// The shell
    shell: Shell,
}

impl CompletionArguments {
    /// Runs `lapis completions`.
    pub fn run(&self, output: &mut Output) -> Result<Verdict, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut arguments::Arguments::command(),
            "lapis",
            &mut script,
        );
        output.bytes(&script)?;
        Ok(Verdict::Good)
    }
}

/// Print the manual page, or write those of all commands
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis man | man -l -
  lapis man --into /usr/local/share/man/man1")]
pub struct ManArguments {
    /// A directory for the pages of all commands
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

impl ManArguments {
    /// Runs `lapis man`.
    pub fn run(&self, output: &mut Output) -> Result<Verdict, Failure> {
        let command = arguments::Arguments::command();
        match &self.into {
            Some(directory) => clap_mangen::generate_to(command, directory)
                .map_err(|error| Failure::file("write manual pages into", directory, &error))?,
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(command)
                    .render(&mut page)
                    .map_err(|error| crate::output::closed(&error))?;
                output.bytes(&page)?;
            }
        }
        Ok(Verdict::Good)
    }
}
