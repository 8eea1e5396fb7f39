//! The `lapis` command line, which is in the library: that is compiled while the crates beneath still are.

use std::process::ExitCode;

fn main() -> ExitCode {
    lapis_cli::main()
}
