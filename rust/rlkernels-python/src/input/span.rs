//! Where arrays lie, to see whether a result would overwrite what is still to be read.

use std::ptr::NonNull;

/// The addresses that an array occupies.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: usize,
    end: usize,
}

impl Span {
    pub(crate) const EMPTY: Self = Self { start: 0, end: 0 };

    pub(super) fn of<T>(data: NonNull<T>, len: usize) -> Self {
        let start = data.as_ptr() as usize;
        Self {
            start,
            end: start + len * size_of::<T>(),
        }
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Something that a kernel reads, and that its result must not overlap.
pub(crate) trait Reads {
    /// The addresses that it occupies.
    fn span(&self) -> Span;
}

impl<T: Reads> Reads for Option<T> {
    fn span(&self) -> Span {
        self.as_ref().map_or(Span::EMPTY, Reads::span)
    }
}
