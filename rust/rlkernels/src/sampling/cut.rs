//! The last token that a filter keeps, and candidates for it.

/// Where a filter cuts: it keeps this token and all before it in the order "likelier first, then the lower position".
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cut {
    pub(super) value: f64,
    pub(super) position: u32,
}

/// A token that may be the last that a filter keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) value: f64,
    pub(super) weight: f64,
    pub(super) position: u32,
}

impl Candidate {
    pub(super) fn cut(&self) -> Cut {
        Cut {
            value: self.value,
            position: self.position,
        }
    }
}
