//! Byte-string keys: inserts and searches, as section 5.4 of the paper has them.
//!
//! The paper runs them inside Memcached, over a network, with all inner nodes on persistent memory and
//! without NV-Tree, whose authors say nothing of such keys. Here they are run on the index alone, with
//! inner nodes in either place.

use lapis_device::Profile;

use super::byte_strings::{StringKind, Strings};
use super::key_list::KeyList;
use super::{
    Contestant, Experiment, Options, Steps, StringRow, free_memory, measured, modelled,
    modelling_threads, side_by_side,
};
use crate::experiment::ExperimentError;

/// How many sessions [`run`] has.
pub(super) fn sessions(options: &Options) -> usize {
    if !options.runs(Experiment::Strings) {
        return 0;
    }
    let measured = options.contestants().filter(Contestant::is_measured).count();
    let each = usize::from(options.sides.measure) * measured
        + usize::from(options.sides.model) * options.contestants().count();
    options.strings.kinds() * each
}

/// One kind of keys, in both orders.
struct Keys {
    kind: StringKind,
    loading: Strings,
    searching: Strings,
}

/// Measures and models every contestant with every kind of strings.
pub(super) fn run(
    options: &Options,
    profile: &Profile,
    steps: &Steps<'_>,
) -> Result<Vec<StringRow>, ExperimentError> {
    let load = |(kind, loading): (StringKind, Strings)| {
        let sessions = if options.sides.model { modelling_threads() } else { 1 };
        free_memory::check_strings(loading.count(), sessions)?;
        let searching = loading.shuffled(!options.seed);
        Ok(Keys { kind, loading, searching })
    };
    let keys: Vec<Keys> = options
        .strings
        .load(options.seed)?
        .into_iter()
        .map(load)
        .collect::<Result<_, ExperimentError>>()?;
    let pairs: Vec<(&Keys, Contestant)> =
        keys.iter().flat_map(|keys| options.contestants().map(move |one| (keys, one))).collect();
    let modelled = if options.sides.model {
        let found = side_by_side(&pairs, |&(keys, contestant)| {
            let found = modelled::string_session(
                contestant,
                &keys.loading,
                &keys.searching,
                options,
                profile,
            );
            steps.step();
            found
        })?;
        found.into_iter().map(Some).collect()
    } else {
        vec![None; pairs.len()]
    };
    let mut rows = Vec::new();
    for ((keys, structure), modelled) in pairs.into_iter().zip(modelled) {
        let measured = if options.sides.measure && structure.is_measured() {
            let found = measured::string_session(structure, &keys.loading, &keys.searching)?;
            steps.step();
            Some(found)
        } else {
            None
        };
        rows.push(StringRow {
            structure,
            strings: keys.kind,
            key_bytes: keys.loading.mean_bytes(),
            measured,
            modelled,
        });
    }
    Ok(rows)
}
