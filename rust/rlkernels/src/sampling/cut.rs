//! Where a filter cuts, and candidates for the last token that it keeps.

use std::ops::Range;

use super::filters::Tied;

/// Where a filter cuts: it keeps all tokens above a value, and those on it whose positions lie in a range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cut {
    pub(super) value: f64,
    pub(super) tied: Range<usize>,
}

/// A token that may be the last that a filter keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) value: f64,
    pub(super) weight: f64,
    pub(super) position: u32,
}

impl Candidate {
    /// The cut of which this token is the last, among `len`.
    pub(super) fn cut(&self, tied: Tied, len: usize) -> Cut {
        let position = self.position as usize;
        Cut {
            value: self.value,
            tied: match tied {
                Tied::All => 0..len,
                Tied::Lower => 0..position + 1,
                Tied::Higher => position..len,
            },
        }
    }
}
