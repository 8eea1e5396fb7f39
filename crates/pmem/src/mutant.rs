//! Mutants, each described once, beside the code that commits it.
//!
//! A list is made by [`mutants!`](crate::mutants): a line of documentation and the operations of a run
//! in which all of them show, then each mutant. Its documentation is what is wrong, in a sentence;
//! behind the name stands what else is to be said, as calls of the methods of [`MutantEntry`].

use crate::observed::Mutant;

/// A mutant, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct MutantEntry {
    /// Its name, by which the structure is told to commit it.
    pub mutant: Mutant,
    /// What is wrong, in a sentence.
    pub what: &'static str,
    /// Who reported the error, of which implementation.
    pub published: &'static str,
    /// Where our structure commits it.
    pub place: &'static str,
    /// The runs in which it shows; none: any of the structure's. A history of several workers shows
    /// it to every strategy alike, since the strategies choose among images.
    pub subjects: &'static [&'static str],
    /// Whether it takes several workers, on random schedules, to show.
    pub takes_workers: bool,
}

impl MutantEntry {
    /// An error that is known as a kind, and that we cannot trace to one report. `what` may begin
    /// with spaces.
    pub const fn new(mutant: Mutant, what: &'static str) -> Self {
        Self {
            mutant,
            what: what.trim_ascii_start(),
            published: "mirrors a bug class",
            place: "",
            subjects: &[],
            takes_workers: false,
        }
    }

    /// Says where it is committed.
    #[must_use]
    pub const fn at(self, place: &'static str) -> Self {
        Self { place, ..self }
    }

    /// Says who reported it.
    #[must_use]
    pub const fn published(self, published: &'static str) -> Self {
        Self { published, ..self }
    }

    /// Says in which runs it shows.
    #[must_use]
    pub const fn in_runs(self, subjects: &'static [&'static str]) -> Self {
        Self { subjects, ..self }
    }

    /// Says that it takes several workers to show.
    #[must_use]
    pub const fn among_workers(self) -> Self {
        Self { takes_workers: true, ..self }
    }

    /// Says what `other` says, of the same error in another structure; the runs are its own.
    #[must_use]
    pub const fn like(self, other: Self) -> Self {
        Self { mutant: self.mutant, subjects: self.subjects, ..other }
    }
}

/// The mutants of one structure.
#[derive(Clone, Copy, Debug)]
pub struct MutantList {
    /// Operations in which all of them show.
    pub ops: usize,
    /// The mutants.
    pub entries: &'static [MutantEntry],
}

impl MutantList {
    /// The entry of a mutant in the list.
    pub const fn entry(&self, mutant: Mutant) -> MutantEntry {
        let mut at = 0;
        while !is_same(self.entries[at].mutant.0.as_bytes(), mutant.0.as_bytes()) {
            at += 1;
        }
        self.entries[at]
    }
}

const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let ([first, rest @ ..], [other_first, other_rest @ ..]) = (one, other) {
        if *first != *other_first {
            return false;
        }
        (one, other) = (rest, other_rest);
    }
    one.is_empty() && other.is_empty()
}

/// Makes a constant of each mutant, and a [`MutantList`] of them all.
///
/// ```
/// lapis_pmem::mutants! {
///     /// The mutants of a counter.
///     COUNTER: 20 operations;
///
///     /// The count is not flushed.
///     UNFLUSHED_COUNT = "counter/unflushed-count" => at("src/counter.rs, add");
/// }
/// assert_eq!(COUNTER.entry(UNFLUSHED_COUNT).what, "The count is not flushed.");
/// ```
#[macro_export]
macro_rules! mutants {
    (
        $(#[$doc:meta])*
        $list:ident: $ops:literal operations;
        $(
            $(#[doc = $what:literal])*
            $mutant:ident = $name:literal => $($method:ident($($argument:tt)*)).+;
        )*
    ) => {
        $(
            $(#[doc = $what])*
            #[doc = concat!("\n\n`", $name, "`")]
            pub const $mutant: $crate::Mutant = $crate::Mutant($name);
        )*

        $(#[$doc])*
        pub const $list: $crate::MutantList = $crate::MutantList {
            ops: $ops,
            entries: &[$(
                $crate::MutantEntry::new($mutant, concat!($($what),*))
                    $(.$method($($argument)*))+
            ),*],
        };
    };
}
