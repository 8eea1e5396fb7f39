//! Looking for what is wrong.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use lapis_buffer::{PageNumber, SpaceProblem};
use lapis_pmem::Domain;
use lapis_tree::Finding;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::tables::{CatalogEntry, Table};
use crate::value::{self, Stored};

impl<D: Domain> Engine<D> {
    /// Walks over every tree, every value and every page, and says what is wrong, a sentence each: pages that cannot be
    /// read, trees that are none, values that lack a part, pages and parts of values that nobody has. Nobody
    /// writes meanwhile. It never fails itself.
    pub fn check(&self) -> Vec<String> {
        let shared = self.shared();
        let dropped: Vec<_> =
            shared.dropped.lock().iter().map(|dropped| Arc::clone(&dropped.table)).collect();
        let system = [Arc::clone(&shared.catalog), Arc::clone(&shared.chunks)];
        let tables: Vec<_> = self.tables().into_iter().chain(dropped).collect();
        let mut problems = self.check_pages(system.iter().chain(&tables));
        if let Err(error) = self.check_values(&tables, &mut problems) {
            problems.push(error.to_string());
        }
        problems
    }

    fn check_pages<'t>(&self, tables: impl Iterator<Item = &'t Arc<Table<D>>>) -> Vec<String> {
        let (mut problems, mut owned) = (Vec::new(), HashSet::<PageNumber>::new());
        for table in tables {
            let name = table.name();
            table.tree().check(&mut |finding| match finding {
                Finding::Page(page) => {
                    if !owned.insert(page) {
                        problems.push(format!("table {name:?}: page {page} is another tree's too"));
                    }
                }
                Finding::Problem { page, what } => {
                    problems.push(format!("table {name:?}, page {page}: {what}"));
                }
            });
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

    /// V1, V2.
    fn check_values(
        &self,
        tables: &[Arc<Table<D>>],
        problems: &mut Vec<String>,
    ) -> Result<(), EngineError> {
        let shared = self.shared();
        let mut known: BTreeSet<u64> = BTreeSet::new();
        for table in tables {
            let mut cursor = table.tree().cursor();
            cursor.seek(Bound::Unbounded)?;
            while let Some((key, record)) = cursor.next()? {
                match value::parse(record) {
                    Some(Stored::Short(_)) => {}
                    Some(Stored::Long(long)) => {
                        known.insert(long.number);
                        problems.extend(shared.read_long(long).err().map(|error| {
                            format!("table {:?}, {}: {error}", table.name(), key.escape_ascii())
                        }));
                    }
                    None => problems.push(value::damaged(table, key, "is no value").to_string()),
                }
            }
        }
        let mut cursor = shared.catalog.tree().cursor();
        cursor.seek(Bound::Unbounded)?;
        while let Some((key, value)) = cursor.next()? {
            if let CatalogEntry::Unwanted { number } = CatalogEntry::parse(key, value)? {
                known.insert(number);
            }
        }
        let (mut cursor, mut strangers) = (shared.chunks.tree().cursor(), BTreeSet::new());
        cursor.seek(Bound::Unbounded)?;
        while let Some((key, _)) = cursor.next()? {
            strangers.extend(value::number_of(key).filter(|number| !known.contains(number)));
        }
        if !strangers.is_empty() {
            problems.push(format!("{} values have parts, and no record", strangers.len()));
        }
        Ok(())
    }
}
