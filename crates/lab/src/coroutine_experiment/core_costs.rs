//! What the core itself does for an operation, and for giving way: found where memory costs nothing.
//!
//! The model charges what an operation does to memory, and is silent about instructions, mispredicted
//! branches and the switch between tasks. So the same code runs on this machine with so few leaves that
//! all of their lines are in L1, and with a flush that does nothing, alone and among twenty. What the
//! model is to add is what is left when the accesses that it charges are taken off:
//!
//! ```text
//!  alone          =  accesses that hit L1 + lookup_ns
//!  among twenty   =  accesses that hit L1 + lookup_ns + resumptions · lookup_switch_ns
//! ```
//!
//! where the resumptions are counted, since few leaves make operations wait for each other now and then;
//! and for inserts likewise: with all lines in L1 the model then takes as long as this machine does. Each
//! time is the least of many rounds, so that what else the machine does counts little. The figures
//! are those of the processor that found them; a profile that holds them says which that was.

use std::cell::Cell;
use std::time::Instant;

use lapis_blocks::fp_leaves::Overlap;
use lapis_device::Profile;
use lapis_device::profile::{Interleaving, Sourced, Trust};
use lapis_pmem::{FlushMethod, Hardware, Pool};
use serde::Serialize;

use super::operations::{
    Core, Nobody, filled_leaves, insert_all, key, look_up_all, remove_all, wrong_answers,
};
use super::page_walks::{GROUPS, PageWalks};
use super::{ExperimentError, Variant, usual_costs};
use crate::experiment::meter::{Meter, ModelMeter, Section};
use crate::experiment::processor;
use crate::keys::scatter;

/// Leaves whose headers and pairs are in L1 with all else: four lines of each, 24 KiB of 32. More than
/// the processor can learn the contents of.
const LEAVES: usize = 96;
const POOL_BYTES: usize = 8 << 20;
/// Lookups of a round.
const LOOKUPS: usize = 500;
/// Inserts of a round, which fill no leaf.
const INSERTS: usize = 384;
const ROUNDS: usize = 4000;
/// How the leaves write. (A flush does nothing here, and costs what the model says.)
const INSERT: Variant = Variant::InsertOnce;

/// An operation with all its lines in L1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InL1 {
    /// By itself, measured here.
    pub alone_ns: f64,
    /// Among twenty, measured here.
    pub in_group_ns: f64,
    /// What the model charges for its accesses by itself.
    pub alone_accesses_ns: f64,
    /// What the model charges for its accesses among twenty.
    pub in_group_accesses_ns: f64,
    /// How often it is resumed among twenty.
    pub resumptions: f64,
}

impl InL1 {
    /// What the model does not charge: for the operation, and for each of its resumptions.
    fn uncharged_ns(&self) -> (f64, f64) {
        let operation = (self.alone_ns - self.alone_accesses_ns).max(0.0);
        let in_group = self.in_group_ns - self.in_group_accesses_ns;
        (operation, ((in_group - operation) / self.resumptions).max(0.0))
    }
}

/// What operations take with all their lines in L1, and what of that the model does not charge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoreCosts {
    /// The processor that this was measured on.
    pub processor: String,
    /// Lookups.
    pub lookup: InL1,
    /// Inserts, whose flushes do nothing.
    pub insert: InL1,
    /// Lookups in leaves on many pages.
    pub page_walks: PageWalks,
    /// The section of a profile that follows.
    pub interleaving: Interleaving,
}

/// Measures on this machine what the core does beside the accesses that `profile` charges.
///
/// # Errors
/// [`ExperimentError`].
pub fn calibrate(profile: &Profile) -> Result<CoreCosts, ExperimentError> {
    let (lookup_ns, insert_ns) = measured_ns()?;
    let [alone, in_group] = charges(profile)?;
    let in_l1 = |measured: [f64; 2], charges: fn(&Charges) -> Charge| InL1 {
        alone_ns: measured[0],
        in_group_ns: measured[1],
        alone_accesses_ns: charges(&alone).accesses_ns,
        in_group_accesses_ns: charges(&in_group).accesses_ns,
        resumptions: charges(&in_group).resumptions,
    };
    let lookup = in_l1(lookup_ns, |charges| charges.lookup);
    let insert = in_l1(insert_ns, |charges| charges.insert);
    let processor = processor();
    let found = |ns: f64| Sourced {
        value: (ns * 10.0).round() / 10.0,
        trust: Trust::U,
        source: format!(
            "measured by lapis lab coroutine --calibrate, with all lines in L1, on {processor}; \
             not on the cores of this profile"
        ),
    };
    let (lookup_ns, lookup_switch_ns) = lookup.uncharged_ns();
    let (insert_ns, insert_switch_ns) = insert.uncharged_ns();
    let before = profile.interleaving.clone().map_or_else(usual_costs, Ok)?;
    let page_walks = PageWalks::measure()?;
    let page_walk_shown = match page_walks.shown() {
        Some(value) => Sourced {
            value: (value * 100.0).round() / 100.0,
            trust: Trust::U,
            source: format!(
                "measured by lapis lab coroutine --calibrate, pages of 4 KiB against 2 MiB among \
                 twenty and alone, on {processor}; not on the cores of this profile"
            ),
        },
        None => before.page_walk_shown,
    };
    let interleaving = Interleaving {
        // Published, not measured here.
        page_walk_ns: before.page_walk_ns,
        page_walk_shown,
        lookup_ns: found(lookup_ns),
        lookup_switch_ns: found(lookup_switch_ns),
        insert_ns: found(insert_ns),
        insert_switch_ns: found(insert_switch_ns),
    };
    Ok(CoreCosts { processor, lookup, insert, page_walks, interleaving })
}

/// What a lookup and an insert take here, alone and in a group.
fn measured_ns() -> Result<([f64; 2], [f64; 2]), ExperimentError> {
    // Nothing is flushed; the fence stays.
    let hardware =
        Hardware::with_method(FlushMethod::EadrNone).unwrap_or_else(|_| Hardware::detect());
    let pool = Pool::create(lapis_pmem::Region::anonymous(POOL_BYTES, POOL_BYTES)?, hardware)?;
    let (leaves, _, loaded) = filled_leaves(pool, LEAVES)?;
    let mut least = [[u128::MAX; 4]; 2];
    for round in 0..ROUNDS {
        let (chosen, fresh) = (chosen_keys(round, loaded), fresh_keys(round, loaded));
        for (at, (group, overlap)) in GROUPS.into_iter().enumerate() {
            let (mut wrong, mut inserted) = (0, Ok(()));
            // With nothing to do, a run makes room for its tasks; and so it does with something.
            let elapsed = [
                timed(|| wrong += look_up_all(&leaves, &[], group, overlap, &Nobody)),
                timed(|| wrong += look_up_all(&leaves, &chosen, group, overlap, &Nobody)),
                timed(|| inserted = insert_all(&leaves, &[], group, INSERT, overlap, &Nobody)),
                timed(|| inserted = insert_all(&leaves, &fresh, group, INSERT, overlap, &Nobody)),
            ];
            inserted?;
            for (least, elapsed) in least[at].iter_mut().zip(elapsed) {
                *least = elapsed.min(*least);
            }
            wrong += remove_all(&leaves, &fresh);
            if wrong > 0 {
                return Err(wrong_answers(wrong, group));
            }
        }
    }
    let each = |full: u128, empty: u128, operations: usize| {
        full.saturating_sub(empty) as f64 / operations as f64
    };
    let lookup_ns = least.map(|[empty, full, ..]| each(full, empty, LOOKUPS));
    let insert_ns = least.map(|[.., empty, full]| each(full, empty, INSERTS));
    Ok((lookup_ns, insert_ns))
}

/// Others in each round, so that no branch is foreseen from the round before.
fn chosen_keys(round: usize, loaded: usize) -> Vec<u64> {
    let number = |at: usize| scatter((round * LOOKUPS + at) as u64 ^ 7 << 40) as usize % loaded;
    (0..LOOKUPS).map(|at| key(number(at))).collect()
}

fn fresh_keys(round: usize, loaded: usize) -> Vec<u64> {
    (0..INSERTS).map(|at| key(loaded + round * INSERTS + at)).collect()
}

/// Nanoseconds.
fn timed(run: impl FnOnce()) -> u128 {
    let began = Instant::now();
    run();
    began.elapsed().as_nanos()
}

/// Counts the resumptions of tasks.
#[derive(Default)]
struct Resumptions(Cell<u64>);

impl Core for Resumptions {
    fn resumes(&self, _: Variant) {
        self.0.set(self.0.get() + 1);
    }
}

/// What the model charges for an operation with all lines in L1, without what its flushes cost, which
/// this machine did not do either.
#[derive(Clone, Copy)]
struct Charge {
    accesses_ns: f64,
    resumptions: f64,
}

struct Charges {
    lookup: Charge,
    insert: Charge,
}

/// The charges alone and in a group.
fn charges(profile: &Profile) -> Result<[Charges; 2], ExperimentError> {
    let (meter, pool) = ModelMeter::with_pool(profile.machine(), POOL_BYTES, POOL_BYTES)?;
    let (leaves, _, loaded) = filled_leaves(pool, LEAVES)?;
    let (chosen, fresh) = (chosen_keys(0, loaded), fresh_keys(0, loaded));
    let (caches, core) = (&profile.caches, &profile.core);
    let charged = |of: &Section, prefetches: f64, resumed: &Resumptions, operations: usize| {
        let counts = of.counts();
        let accesses_ns = counts.loads as f64 * caches.l1_latency_ns.value
            + counts.stores as f64 * core.store_ns.value
            + counts.fences as f64 * core.fence_ns.value;
        Charge {
            accesses_ns: accesses_ns / operations as f64 + prefetches * core.store_ns.value,
            resumptions: resumed.0.get() as f64 / operations as f64,
        }
    };
    let charges = |(group, overlap): (usize, Overlap)| -> Result<Charges, ExperimentError> {
        let prefetches = f64::from(u8::from(overlap.reads));
        let resumed = Resumptions::default();
        let (_, section) = meter.section(1, || {
            Ok::<_, ExperimentError>(look_up_all(&leaves, &chosen, group, overlap, &resumed))
        })?;
        // The header, and the line of the pair.
        let lookup = charged(&section, 2.0 * prefetches, &resumed, LOOKUPS);
        let resumed = Resumptions::default();
        let ((), section) =
            meter.section(1, || insert_all(&leaves, &fresh, group, INSERT, overlap, &resumed))?;
        let insert = charged(&section, prefetches, &resumed, INSERTS);
        remove_all(&leaves, &fresh);
        Ok(Charges { lookup, insert })
    };
    let [alone, in_group] = GROUPS;
    Ok([charges(alone)?, charges(in_group)?])
}

const HEADING: &str = "[interleaving]";

impl CoreCosts {
    /// The section of a profile.
    pub fn section(&self) -> String {
        let mut text = format!("{HEADING} # written by `lapis lab coroutine --calibrate`\n");
        let Interleaving {
            lookup_ns,
            lookup_switch_ns,
            insert_ns,
            insert_switch_ns,
            page_walk_ns,
            page_walk_shown,
        } = &self.interleaving;
        for (name, field) in [
            ("lookup_ns", lookup_ns),
            ("lookup_switch_ns", lookup_switch_ns),
            ("insert_ns", insert_ns),
            ("insert_switch_ns", insert_switch_ns),
            ("page_walk_ns", page_walk_ns),
            ("page_walk_shown", page_walk_shown),
        ] {
            text.push_str(&format!(
                "{name} = {{ value = {:?}, trust = \"{}\", source = {:?} }}\n",
                field.value, field.trust, field.source
            ));
        }
        text
    }
}

/// The text of a profile with the section in place of the one it has, or at its end.
///
/// # Errors
/// [`ExperimentError::Profile`] if `profile` is none; `file` is for the message.
pub fn put_into_profile(
    file: &str,
    profile: &str,
    costs: &CoreCosts,
) -> Result<String, ExperimentError> {
    let before = Profile::parse(file, profile.as_bytes())?;
    let section = costs.section();
    let at = profile.find(&format!("\n{HEADING}")).filter(|_| before.interleaving.is_some());
    let text = match at {
        Some(at) => {
            let (head, old) = profile.split_at(at + 1);
            let tail = old[1..].find("\n[").map_or("", |end| &old[end + 1..]);
            format!("{head}{section}{tail}")
        }
        None => {
            // Before the costs of pages, which stay last.
            let end = profile.find("\n[page]").unwrap_or(profile.len());
            let (head, tail) = profile.split_at(end);
            format!("{}\n\n{section}{tail}", head.trim_end())
        }
    };
    let after = Profile::parse(file, text.as_bytes())?;
    debug_assert_eq!(
        Profile { interleaving: None, ..after },
        Profile { interleaving: None, ..before }
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use lapis_device::ProfileError;

    use super::*;

    fn costs(lookup_ns: f64) -> CoreCosts {
        let profile = Profile::named("optane-100").unwrap();
        let in_l1 = InL1 {
            alone_ns: 50.0,
            in_group_ns: 90.0,
            alone_accesses_ns: 10.0,
            in_group_accesses_ns: 11.0,
            resumptions: 3.0,
        };
        let mut interleaving = profile.interleaving.unwrap();
        interleaving.lookup_ns.value = lookup_ns;
        let page_walks = PageWalks { alone_ns: [300.0, 200.0], in_group_ns: [150.0, 90.0] };
        let processor = "a processor".into();
        CoreCosts { processor, lookup: in_l1, insert: in_l1, page_walks, interleaving }
    }

    #[test]
    fn what_the_model_does_not_charge_makes_up_what_was_measured() {
        let in_l1 = costs(1.0).lookup;
        let (operation_ns, switch_ns) = in_l1.uncharged_ns();
        assert_eq!(in_l1.alone_accesses_ns + operation_ns, in_l1.alone_ns);
        let in_group_ns = in_l1.in_group_accesses_ns + operation_ns + 3.0 * switch_ns;
        assert!((in_group_ns - in_l1.in_group_ns).abs() < 1e-9);
    }

    #[test]
    fn the_section_replaces_the_one_there_or_is_added_and_nothing_else_changes() {
        for name in ["optane-100", "dram"] {
            let before = Profile::text_of(name).unwrap();
            let text = put_into_profile("x.toml", before, &costs(12.5)).unwrap();
            let (before, after) =
                (Profile::named(name).unwrap(), Profile::parse("", text.as_bytes()));
            let after = after.unwrap();
            assert_eq!(after.interleaving, Some(costs(12.5).interleaving));
            assert_eq!(Profile { interleaving: before.interleaving.clone(), ..after }, before);
        }
        let refused = put_into_profile("x.toml", "name = 3", &costs(1.0)).unwrap_err();
        let wrong = ProfileError::Field {
            file: "x.toml".into(),
            field: "name".into(),
            what: "is no text".into(),
        };
        assert_eq!(refused.to_string(), wrong.to_string());
    }

    #[test]
    fn what_the_model_charges_in_l1_is_what_was_counted() {
        let [alone, in_group] = charges(&Profile::named("optane-100").unwrap()).unwrap();
        // A bitmap, some fingerprints, a key and a value; an insert stores four words and fences.
        assert!((5.0..20.0).contains(&alone.lookup.accesses_ns), "{}", alone.lookup.accesses_ns);
        assert!((10.0..40.0).contains(&alone.insert.accesses_ns), "{}", alone.insert.accesses_ns);
        let (one, twenty) = (alone.insert.accesses_ns, in_group.insert.accesses_ns);
        assert!(one > twenty, "a group shares its fences: {one} {twenty}");
        assert_eq!((alone.lookup.resumptions, alone.insert.resumptions), (0.0, 0.0));
        // After two prefetches; after one, and two fences. Now and then for another in the leaf.
        assert!(
            (2.0..2.6).contains(&in_group.lookup.resumptions),
            "{}",
            in_group.lookup.resumptions
        );
        assert!(
            (3.0..4.5).contains(&in_group.insert.resumptions),
            "{}",
            in_group.insert.resumptions
        );
    }
}
