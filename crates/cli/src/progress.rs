//! Progress bars: on a terminal, on standard error; nothing in a pipe.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts `what` up to `total`.
pub fn count(total: u64, what: &str) -> ProgressBar {
    styled(total, &format!("{{bar:30}} {{human_pos}}/{{human_len}} {what}  {{msg}} {{eta}}"))
}

/// A bar that counts bytes up to `total`.
pub fn bytes(total: u64) -> ProgressBar {
    styled(total, "{bar:30} {bytes}/{total_bytes}  {msg} {eta}")
}

fn styled(total: u64, template: &str) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// A count of `what` of which nobody knows the total.
pub fn spinner(what: &str) -> ProgressBar {
    styled(0, &format!("{{spinner}} {{human_pos}} {what}  {{elapsed}}"))
}
