//! What hash tables share: the word that refers to a table, buckets, and the locks in them.

pub(crate) mod bucket;
pub(crate) mod counter;
pub(crate) mod locks;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod writer;

/// What [`Index`](crate::Index) asks of a hash table whose parts are methods of its own: `change_key`,
/// `visit_entries`, and what is in `check`.
macro_rules! forward_to_parts {
    ($domain:ident, $key:ident) => {
        fn pool(&self) -> &std::sync::Arc<lapis_pmem::Pool<$domain>> {
            &self.pool
        }

        #[inline]
        fn change(
            &self,
            key: &$key,
            change: $crate::Change,
        ) -> Result<$crate::Outcome, $crate::IndexError> {
            self.change_key(key, change)
        }

        /// # Panics
        /// As [`Index::get`].
        fn for_each(&self, visit: &mut dyn FnMut(&$key, u64) -> std::ops::ControlFlow<()>) {
            self.visit_entries(visit);
        }

        fn check(&self) -> Vec<String> {
            check::problems(self)
        }

        fn statistics(&self) -> $crate::Statistics {
            check::statistics(self)
        }

        fn visit_blocks(
            &self,
            visitor: &mut lapis_pmem::BlockVisitor<'_, $domain>,
            value: $crate::OnValue<'_, $domain>,
        ) {
            check::visit_blocks(self, visitor, value);
        }
    };
}
pub(crate) use forward_to_parts;
