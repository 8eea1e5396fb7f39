//! Byte-string keys: inserts and searches, as section 5.4 of the paper has them.
//!
//! The paper runs them inside Memcached, over a network, with all inner nodes on persistent memory and
//! without NV-Tree, whose authors say nothing of such keys. Here they are run on the index alone, with
//! inner nodes in either place.

use lapis_device::Profile;

use super::byte_strings::{StringKind, Strings};
use super::key_list::KeyList;
use super::{
    Contestant, Options, StringCase, StringRow, free_memory, measured, modelled, modelling_threads,
};
use crate::experiment::ExperimentError;
use crate::progress::OnProgress;

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
    progress: OnProgress<'_>,
) -> Result<Vec<StringRow>, ExperimentError> {
    let load = |(kind, loading): (StringKind, Strings)| {
        let sessions = if options.sides.model { modelling_threads() } else { 1 };
        free_memory::check_strings(loading.count(), sessions)?;
        let searching = loading.shuffled(!options.seed);
        Ok(Keys { kind, loading, searching })
    };
    let keys = options.strings.load(options.seed)?.into_iter().map(load);
    let keys = keys.collect::<Result<Vec<Keys>, ExperimentError>>()?;
    let cases: Vec<(&Keys, Contestant)> =
        keys.iter().flat_map(|keys| options.contestants().map(move |one| (keys, one))).collect();
    let found = options.sides.run_side_by_side(
        &cases,
        progress,
        |&(keys, structure)| {
            let measured = structure.is_measured();
            let run = || measured::string_session(structure, &keys.loading, &keys.searching);
            measured.then(run).transpose()
        },
        |&(keys, structure)| {
            let Keys { loading, searching, .. } = keys;
            modelled::string_session(structure, loading, searching, options, profile)
        },
    )?;
    let rows = cases.into_iter().zip(found).map(|((keys, structure), (measured, modelled))| {
        let (strings, key_bytes) = (keys.kind, keys.loading.mean_bytes());
        let case = StringCase { structure, strings, key_bytes };
        StringRow { case, measured: measured.flatten(), modelled }
    });
    Ok(rows.collect())
}
