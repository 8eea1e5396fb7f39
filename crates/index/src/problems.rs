//! What a check finds wrong: listed up to a point, then only counted.

/// Problems listed before the rest is only counted.
const LISTED: usize = 100;

/// What a check has found so far.
#[derive(Default)]
pub(crate) struct Problems {
    listed: Vec<String>,
    unlisted: u64,
}

impl Problems {
    pub(crate) fn push(&mut self, what: String) {
        if self.listed.len() < LISTED {
            self.listed.push(what);
        } else {
            self.unlisted += 1;
        }
    }

    /// All that are listed, and how many are not.
    pub(crate) fn finish(mut self) -> Vec<String> {
        if self.unlisted > 0 {
            self.listed.push(format!("and {} more problems", self.unlisted));
        }
        self.listed
    }
}
