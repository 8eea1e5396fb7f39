//! A region and a modelled machine over it; and what its words may hold after a crash.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use lapis_device::{
    Config, CrashCause, CrashPoint, CrashPoints, Event, ImageBudget, Marker, Modelled,
    PowerFailDomain, Trace, set_current_worker,
};
use lapis_pmem::{Domain, EXTENT_BYTES, Region};

pub struct Bench {
    pub region: Region,
    pub domain: Modelled,
}

/// Words of the three lines that the tests use, by index of the eight bytes.
pub const WORDS: usize = 24;
pub const B: usize = 8;

impl Bench {
    pub fn new() -> Self {
        Self::with(Config::tracing())
    }

    pub fn with(config: Config) -> Self {
        let region = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
        let domain = Modelled::over(&region, config);
        set_current_worker(0);
        Self { region, domain }
    }

    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: inside the mapped region, aligned, only accessed atomically.
        unsafe { &*self.region.base().add(index * 8).cast::<AtomicU64>() }
    }

    pub fn byte(&self, index: usize) -> &AtomicU8 {
        // SAFETY: as for `word`.
        unsafe { &*self.region.base().add(index).cast::<AtomicU8>() }
    }

    pub fn relaxed(&self, index: usize, value: u64) {
        self.domain.store::<u64>(self.word(index), value, Ordering::Relaxed);
    }

    pub fn ordered(&self, index: usize, value: u64) {
        self.domain.store::<u64>(self.word(index), value, Ordering::Release);
    }

    #[track_caller]
    pub fn flush(&self, index: usize) {
        self.domain.flush(self.word(index));
    }

    #[track_caller]
    pub fn fence(&self) {
        self.domain.fence();
    }

    pub fn nontemporal(&self, index: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: inside the mapped region, and no other thread uses it.
        unsafe { self.domain.copy_nontemporal(self.region.base().add(index * 8), &bytes) };
    }

    pub fn copy(&self, index: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: inside the mapped region, and no other thread uses it.
        unsafe { self.domain.copy(self.region.base().add(index * 8), &bytes) };
    }

    /// What the words of `indices` may hold after a crash at the last crash point, which is the
    /// end of the trace.
    pub fn at_end<const N: usize>(&self, indices: [usize; N]) -> BTreeSet<[u64; N]> {
        self.at_end_of(PowerFailDomain::Adr, indices)
    }

    pub fn at_end_of<const N: usize>(
        &self,
        domain: PowerFailDomain,
        indices: [usize; N],
    ) -> BTreeSet<[u64; N]> {
        at_end_of_trace(self.domain.take_trace(), domain, indices)
    }
}

/// What the words of `indices` may hold after a crash at the end of a trace.
pub fn at_end_of_trace<const N: usize>(
    mut trace: Trace,
    domain: PowerFailDomain,
    indices: [usize; N],
) -> BTreeSet<[u64; N]> {
    trace.events.push(Event::Marker { worker: 0, marker: Marker::End(999) });
    at_points(&trace, domain, indices, |point| point.cause == CrashCause::OperationEnd(999))
}

/// The same for a crash at any of the points that are `wanted`.
pub fn at_points<const N: usize>(
    trace: &Trace,
    domain: PowerFailDomain,
    indices: [usize; N],
    wanted: impl Fn(CrashPoint) -> bool,
) -> BTreeSet<[u64; N]> {
    let mut points = CrashPoints::new(trace, &[], domain);
    let mut scratch = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
    let mut found = BTreeSet::new();
    while let Some(point) = points.advance() {
        points.bring_up_to_date(&mut scratch).unwrap();
        if !wanted(point) {
            continue;
        }
        let states = points.states();
        let images = states.images(ImageBudget::default());
        assert!(images.is_exhaustive());
        for image in images {
            states.apply(&image, &mut scratch).unwrap();
            found.insert(indices.map(|index| {
                // SAFETY: inside the mapped region; plain memory of this function.
                unsafe { scratch.base().add(index * 8).cast::<u64>().read() }
            }));
            states.revert(&image, &mut scratch).unwrap();
        }
    }
    found
}

/// An instruction of a litmus program: words are named by their index.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// An ordered store.
    Ordered(usize, u64),
    /// A relaxed one.
    Relaxed(usize, u64),
    /// A relaxed store of the first byte of a word.
    Byte(usize, u8),
    /// A copy to words in a row.
    Copy(usize, &'static [u64]),
    /// The same by non-temporal stores.
    NonTemporal(usize, &'static [u64]),
    /// A locked exchange.
    Swap(usize, u64),
    /// A locked compare-exchange with what is expected and what is stored.
    CompareExchange(usize, u64, u64),
    /// `clwb` of the line of a word.
    Flush(usize),
    /// `clflush` of a line, which only traces of other programs have.
    StrongFlush(u32),
    /// `sfence`.
    Fence,
    /// Something is acknowledged.
    Acknowledge,
    /// From here on it is another worker.
    Worker(u8),
}

/// The trace of a program.
fn trace_of(program: &[Step]) -> Trace {
    let bench = Bench::new();
    let mut trace = Trace::default();
    for &step in program {
        match step {
            Step::Ordered(index, value) => bench.ordered(index, value),
            Step::Relaxed(index, value) => bench.relaxed(index, value),
            Step::Byte(index, value) => {
                bench.domain.store::<u8>(bench.byte(index * 8), value, Ordering::Relaxed);
            }
            Step::Copy(index, words) => bench.copy(index, words),
            Step::NonTemporal(index, words) => bench.nontemporal(index, words),
            Step::Swap(index, value) => _ = bench.domain.swap::<u64>(bench.word(index), value),
            Step::CompareExchange(index, expected, value) => {
                let before = bench.word(index).load(Ordering::Relaxed);
                let found = bench.domain.compare_exchange(bench.word(index), expected, value);
                assert_eq!(found, if before == expected { Ok(before) } else { Err(before) });
            }
            Step::Flush(index) => bench.flush(index),
            Step::StrongFlush(line) => {
                trace = trace.continued(trace.events.len(), &bench.domain.take_trace());
                trace.events.push(Event::StrongFlush { worker: 0, line });
            }
            Step::Fence => bench.fence(),
            Step::Acknowledge => bench.domain.mark(Marker::End(0)),
            Step::Worker(worker) => set_current_worker(worker),
        }
    }
    trace.continued(trace.events.len(), &bench.domain.take_trace())
}

/// What the words of `indices` may hold after a crash at the end of a program, with what persists then.
pub fn left<const N: usize>(
    program: &[Step],
    domain: PowerFailDomain,
    indices: [usize; N],
) -> BTreeSet<[u64; N]> {
    at_end_of_trace(trace_of(program), domain, indices)
}

/// The same after a crash at any of its crash points.
pub fn left_at_any_point<const N: usize>(
    program: &[Step],
    domain: PowerFailDomain,
    indices: [usize; N],
) -> BTreeSet<[u64; N]> {
    at_points(&trace_of(program), domain, indices, |_| true)
}

/// Litmus tests, a program each: what some words may hold after a crash.
macro_rules! litmus {
    ($left:ident, $domain:ident; $($name:ident: $program:expr, $words:expr => $legal:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let domain = lapis_device::PowerFailDomain::$domain;
                let found = crate::litmus::bench::$left(&$program, domain, $words);
                assert_eq!(found, std::collections::BTreeSet::from_iter($legal));
            }
        )*
    };
}
pub(crate) use litmus;

/// All subsets of these words.
pub fn subsets<const N: usize>(words: [u64; N]) -> BTreeSet<[u64; N]> {
    let subset = |mask: u32| std::array::from_fn(|at| u64::from(mask >> at & 1) * words[at]);
    (0..1u32 << N).map(subset).collect()
}

pub fn set<const N: usize>(states: &[[u64; N]]) -> BTreeSet<[u64; N]> {
    states.iter().copied().collect()
}
