//! The choices of a packing, by name.

use crate::choice::choice;

choice! {
    /// Which bin among those with room a sequence goes into; if there is none, a new bin is opened.
    pub enum Strategy: "strategy" {
        /// The first one opened. Uses at most ⌊11/9 · optimum + 6/9⌋ bins (Dósa, "The tight bound of first fit decreasing
        /// bin-packing algorithm", 2007).
        FirstFitDecreasing = "first-fit-decreasing",
        /// The fullest one, of equally full ones the first opened (Johnson, "Near-optimal bin packing algorithms", 1973).
        BestFitDecreasing = "best-fit-decreasing",
        /// The last one; what does not fit goes on in a new bin, so all bins but the last are full. Cuts sequences:
        /// only with [`OverLong::Split`].
        Wrapped = "wrapped",
    }
}

choice! {
    /// What happens to a sequence longer than a bin.
    pub enum OverLong: "over_long" {
        /// It is an error that names the sequence.
        Error = "error",
        /// It counts, and is to be cut by the caller, as `max_length` tokens.
        Truncate = "truncate",
        /// It is cut into pieces, which are packed as sequences of their own.
        Split = "split",
    }
}
