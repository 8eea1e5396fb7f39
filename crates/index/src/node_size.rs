//! How large the nodes of a B+-tree may be.

use lapis_pmem::LINE_BYTES;

use crate::index::{IndexError, IndexOptions};

/// The sizes that nodes, or leaves, of a structure may have: whole lines, from the smallest to the
/// largest.
#[derive(Debug)]
pub struct NodeSizes {
    /// What one of them is called, and many.
    pub names: [&'static str; 2],
    /// Bytes of the smallest.
    pub smallest_bytes: usize,
    pub largest_bytes: usize,
    pub default_bytes: usize,
}

impl NodeSizes {
    fn allow(&self, bytes: usize) -> bool {
        (self.smallest_bytes..=self.largest_bytes).contains(&bytes)
            && bytes.is_multiple_of(LINE_BYTES)
    }

    /// The size that a new index is to have.
    pub fn chosen(&self, options: &IndexOptions) -> Result<usize, IndexError> {
        match options.node_bytes {
            0 => Ok(self.default_bytes),
            bytes if self.allow(bytes) => Ok(bytes),
            bytes => Err(IndexError::BadOption {
                what: format!(
                    "a {} has {} to {} bytes, a multiple of {LINE_BYTES}, not {bytes}",
                    self.names[0], self.smallest_bytes, self.largest_bytes
                ),
            }),
        }
    }

    /// The size that an index has whose root says this.
    pub fn found(&self, bytes: u64) -> Result<usize, IndexError> {
        match bytes as usize {
            bytes if self.allow(bytes) => Ok(bytes),
            bytes => {
                Err(IndexError::Damaged { what: format!("{} of {bytes} bytes", self.names[1]) })
            }
        }
    }
}
