//! Looking for what is wrong.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use lapis_buffer::{PageNumber, SpaceProblem};
use lapis_pmem::Domain;
use lapis_tree::Finding;

use crate::contents::Contents;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::tables::{CatalogEntry, Table};
use crate::value::{self, Stored};

impl<D: Domain> Engine<D> {
    /// Walks over every tree, every value and every page, and says what is wrong, a sentence each: pages that cannot be
    /// read, trees that are none, values that lack a part, pages and parts of values that nobody has. Of pages that are in
    /// no tree it knows those on the device: after a checkpoint, all. Nobody writes meanwhile. It never fails itself.
    pub fn check(&self) -> Vec<String> {
        let found = self.shared().guarded(|| Ok(self.problems()));
        found.unwrap_or_else(|error| vec![error.to_string()])
    }

    fn problems(&self) -> Vec<String> {
        let shared = self.shared();
        let dropped: Vec<_> =
            shared.dropped.lock().iter().map(|dropped| Arc::clone(&dropped.table)).collect();
        let system = [Arc::clone(&shared.catalog), Arc::clone(&shared.chunks)];
        let tables = self.tables();
        let mut problems = self.check_pages(system.iter().chain(&tables), &dropped);
        if let Err(error) = self.check_values(&tables, &dropped, &mut problems) {
            problems.push(error.to_string());
        }
        problems.extend(self.check_pool());
        problems
    }

    fn check_pages<'t>(
        &self,
        tables: impl Iterator<Item = &'t Arc<Table<D>>>,
        dropped: &'t [Arc<Table<D>>],
    ) -> Vec<String> {
        let (mut problems, mut owned) = (Vec::new(), HashSet::<PageNumber>::new());
        let tables = tables.map(|table| (table, true));
        for (table, is_whole) in tables.chain(dropped.iter().map(|table| (table, false))) {
            let name = table.name();
            match table.contents() {
                Contents::Tree(tree) => {
                    let mut tell = |finding| match finding {
                        Finding::Page(page) => {
                            if !owned.insert(page) {
                                let what = "is another tree's too";
                                problems.push(format!("table {name:?}: page {page} {what}"));
                            }
                        }
                        Finding::Problem { page, what } => {
                            problems.push(format!("table {name:?}, page {page}: {what}"));
                        }
                    };
                    _ = match is_whole {
                        true => tree.check(&mut tell),
                        false => tree.check_what_is_left(&mut tell),
                    };
                }
                Contents::Index(index) => {
                    let found = index.problems().into_iter();
                    problems.extend(found.map(|what| format!("table {name:?}: {what}")));
                }
            }
        }
        let Some(space) = self.shared().manager.space() else { return problems };
        problems.extend(space.check().into_iter().map(|problem| match problem {
            SpaceProblem::Map(first) => {
                format!("the map of the pages from {first} on is damaged")
            }
            SpaceProblem::Page(error) => error.to_string(),
        }));
        let unowned = space.numbers().into_iter().filter(|page| !owned.contains(page)).count();
        if unowned > 0 {
            problems.push(format!("{unowned} pages are in use, and in no tree"));
        }
        problems
    }

    /// Blocks that nobody reaches. After a power cut there may be some, until they are looked for.
    fn check_pool(&self) -> Option<String> {
        let pool = self.pool().filter(|pool| !pool.needs_reclaim())?;
        let audit = pool.audit(&self.shared().reachable(pool));
        (!audit.is_clean()).then(|| format!("persistent memory: {audit:?}"))
    }

    /// V1, V2. Of tables that were dropped the parts of values go before the records do, and what is left of one whose
    /// values are listed has no records that matter.
    fn check_values(
        &self,
        tables: &[Arc<Table<D>>],
        dropped: &[Arc<Table<D>>],
        problems: &mut Vec<String>,
    ) -> Result<(), EngineError> {
        let shared = self.shared();
        let mut known: BTreeSet<u64> = BTreeSet::new();
        let tables = tables.iter().map(|table| (table, true));
        let dropped = dropped.iter().filter(|table| table.has_long_values());
        for (table, has_parts) in tables.chain(dropped.map(|table| (table, false))) {
            table.contents().visit_all(|key, record| match record.map(value::parse) {
                Ok(Some(Stored::Short(_))) => {}
                Ok(Some(Stored::Long(long))) => {
                    known.insert(long.number);
                    let read = if has_parts { shared.read_long(long).map(|_| ()) } else { Ok(()) };
                    problems.extend(read.err().map(|error| {
                        format!("table {:?}, {}: {error}", table.name(), key.escape_ascii())
                    }));
                }
                Ok(None) => problems.push(value::damaged(table, key, "is no value").to_string()),
                Err(error) => problems.push(format!("table {:?}: {error}", table.name())),
            })?;
        }
        let mut damaged = Vec::new();
        shared.catalog.contents().visit_all(|key, value| {
            match value.and_then(|value| CatalogEntry::parse(key, value)) {
                Ok(CatalogEntry::Unwanted { number }) => _ = known.insert(number),
                Ok(_) => {}
                Err(error) => damaged.push(error.to_string()),
            }
        })?;
        problems.extend(damaged);
        let mut strangers = BTreeSet::new();
        shared.chunks.contents().visit_all(|key, _| {
            strangers.extend(value::number_of(key).filter(|number| !known.contains(number)));
        })?;
        if !strangers.is_empty() {
            problems.push(format!("{} values have parts, and no record", strangers.len()));
        }
        Ok(())
    }
}
