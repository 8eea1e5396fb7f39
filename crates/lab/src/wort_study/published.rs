//! What the paper gives in numbers: Lee, Lim, Song, Nam and Noh, *WORT* (FAST 2017), Table 1 (d).

use lapis_index::IndexKind;

use super::Contestant;
use crate::keys::Distribution;

/// Bits by which a node of WORT branches, section 5.1.
pub(super) const WORT_BITS: u32 = 4;
/// Bits by which a node of WOART and ART+CoW branches, section 3.5.
pub(super) const ART_BITS: u32 = 8;

/// Average leaf node depth at 128 M keys, for dense, sparse and clustered ones.
const DEPTHS: [(&str, [f64; 3]); 6] = [
    ("wort", [7.0, 7.0, 8.2]),
    ("woart", [4.0, 4.0, 4.2]),
    ("art-cow", [4.0, 4.0, 4.2]),
    ("fp-tree", [3.0, 3.0, 3.0]),
    ("nv-tree", [3.0, 3.0, 3.0]),
    ("wb-tree", [4.0, 4.0, 4.0]),
];

/// The published average leaf node depth of a structure, at 128 M keys.
pub fn published_depth(contestant: Contestant, distribution: Distribution) -> Option<f64> {
    let name = contestant.index().map(IndexKind::name)?;
    let (_, depths) = DEPTHS.iter().find(|(of, _)| *of == name)?;
    let at = super::DISTRIBUTIONS.iter().position(|&one| one == distribution)?;
    depths.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_of_the_paper_has_its_depth_and_another_none() {
        let wort = Contestant::Index(IndexKind::Wort);
        assert_eq!(published_depth(wort, Distribution::Clustered), Some(8.2));
        assert_eq!(published_depth(wort, Distribution::Uniform), None);
        let fast_fair = Contestant::Index(IndexKind::FastFair);
        assert_eq!(published_depth(fast_fair, Distribution::Dense), None);
    }
}
