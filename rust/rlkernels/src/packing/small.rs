//! At most 32 sequences: every bin is looked at, and all memory is on the stack.

use super::choice::{OverLong, Strategy};
use super::order::check;
use crate::Result;

/// Sequences up to which looking at every bin is cheaper than building the structures that avoid it.
pub(super) const SMALL: usize = 32;

/// The packing of at most [`SMALL`] sequences.
#[derive(Debug, Clone)]
pub(super) struct Small {
    pub(super) count: usize,
    pub(super) bins: usize,
    pub(super) tokens: u128,
    /// The sequences from long to short, equal lengths by index.
    order: [u8; SMALL],
    /// The bin of each, in that order.
    bin: [u8; SMALL],
}

impl Small {
    pub(super) fn new(
        lengths: &[i64],
        max_length: i64,
        strategy: Strategy,
        over_long: OverLong,
    ) -> Result<Self> {
        check(lengths, max_length, over_long)?;
        let most = max_length as u64;
        let mut small = Self {
            count: lengths.len(),
            bins: 0,
            tokens: 0,
            order: [0; SMALL],
            bin: [0; SMALL],
        };
        let mut sorted = [0u64; SMALL];
        for (index, &length) in lengths.iter().enumerate() {
            let length = (length as u64).min(most);
            small.tokens += u128::from(length);
            let mut at = index;
            while at > 0 && sorted[at - 1] < length {
                (sorted[at], small.order[at]) = (sorted[at - 1], small.order[at - 1]);
                at -= 1;
            }
            (sorted[at], small.order[at]) = (length, index as u8);
        }
        let mut rooms = [0u64; SMALL];
        for (&length, slot) in sorted[..lengths.len()].iter().zip(&mut small.bin) {
            let open = &rooms[..small.bins];
            let found = match strategy {
                Strategy::FirstFitDecreasing => open.iter().position(|&room| room >= length),
                Strategy::BestFitDecreasing | Strategy::Wrapped => (0..open.len())
                    .filter(|&bin| open[bin] >= length)
                    .min_by_key(|&bin| open[bin]), // of equal ones the first
            };
            let bin = found.unwrap_or_else(|| {
                rooms[small.bins] = most;
                small.bins += 1;
                small.bins - 1
            });
            rooms[bin] -= length;
            *slot = bin as u8;
        }
        Ok(small)
    }

    /// Bin after bin; a bin keeps the order of placement.
    pub(super) fn write(&self, indices: &mut [i64], offsets: &mut [i64]) {
        let placed = || self.order.iter().zip(&self.bin).take(self.count);
        let mut end = 0;
        offsets[0] = 0;
        for (bin, offset) in offsets[1..].iter_mut().enumerate() {
            for (&index, _) in placed().filter(|&(_, &of)| usize::from(of) == bin) {
                indices[end] = i64::from(index);
                end += 1;
            }
            *offset = end as i64;
        }
    }
}
