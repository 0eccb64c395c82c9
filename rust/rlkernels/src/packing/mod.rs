//! Packing of sequences into bins of bounded length.
//!
//! Both strategies take the longest sequence first, equal lengths by index, so sequences come in runs of one length. A
//! strategy decides how many of a run go into which bin: it keeps choosing the same bin until the length no longer fits,
//! because every bin that it would prefer is too full already.

mod best_fit;
mod bitmap;
mod choice;
mod first_fit;
mod order;
mod pieces;
mod placement;
mod small;

pub use choice::{OverLong, Strategy};
pub use pieces::{Pieces, pack_pieces};

use crate::{Error, Result};
use order::Sorted;
use placement::Placement;
use small::{SMALL, Small};

/// Which sequences go into which bin: bin `b` holds `indices[offsets[b]..offsets[b + 1]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Packing {
    /// A permutation of `0..n`, bin after bin; inside a bin in the order of placement (longest first).
    pub indices: Vec<i64>,
    /// Where each bin starts, and the end: one element more than there are bins, the first 0.
    pub offsets: Vec<i64>,
    /// The tokens kept over the room of all bins, in [0, 1]; 1 where there are no bins.
    pub efficiency: f64,
}

/// Packs sequences: longest first, each into the bin that the strategy names; O(n log n).
///
/// `lengths` (n) and `max_length` are in tokens. Equal lengths keep their original order. A sequence of length 0 takes
/// no room: it goes into the first bin (first-fit) or into the fullest (best-fit), and opens one only if there is none.
///
/// ```
/// use rlkernels::packing::{OverLong, Strategy, pack_sequences};
///
/// // Bins of 7: 5, then 3 and 3 together; the 1 goes to the fullest bin with room.
/// let packing = pack_sequences(&[5, 3, 3, 1], 7, Strategy::BestFitDecreasing, OverLong::Error)?;
/// assert_eq!((packing.indices, packing.offsets), (vec![0, 1, 2, 3], vec![0, 1, 4]));
/// # Ok::<(), rlkernels::Error>(())
/// ```
///
/// # Errors
/// `max_length` below 1; a length that is negative, or above `max_length` unless [`OverLong::Truncate`] is asked for,
/// with its index and value; 2³² − 1 sequences or more; [`OverLong::Split`] or [`Strategy::Wrapped`], which
/// [`pack_pieces`] has.
pub fn pack_sequences(
    lengths: &[i64],
    max_length: i64,
    strategy: Strategy,
    over_long: OverLong,
) -> Result<Packing> {
    let plan = Plan::new(lengths, max_length, strategy, over_long)?;
    let (mut indices, mut offsets) = (vec![0; plan.sequences()], vec![0; plan.bins() + 1]);
    plan.write(&mut indices, &mut offsets);
    Ok(Packing {
        indices,
        offsets,
        efficiency: plan.efficiency(),
    })
}

/// A packing that is decided and not yet written, for callers that own the memory of the result.
///
/// ```
/// use rlkernels::packing::{OverLong, Plan, Strategy};
///
/// let plan = Plan::new(&[5, 3, 3, 1], 7, Strategy::BestFitDecreasing, OverLong::Error)?;
/// assert_eq!((plan.sequences(), plan.bins()), (4, 2));
/// let (mut indices, mut offsets) = ([0; 4], [0; 3]);
/// plan.write(&mut indices, &mut offsets);
/// assert_eq!((indices, offsets), ([0, 1, 2, 3], [0, 1, 4]));
/// # Ok::<(), rlkernels::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    decided: Decided,
    efficiency: f64,
}

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // the large one is the one whose memory must not come from the heap
enum Decided {
    Small(Small),
    Many {
        order: Vec<u32>,
        placement: Placement,
    },
}

impl Plan {
    /// Decides which sequence goes where.
    ///
    /// # Errors
    /// As [`pack_sequences`], whose arguments these are.
    pub fn new(
        lengths: &[i64],
        max_length: i64,
        strategy: Strategy,
        over_long: OverLong,
    ) -> Result<Self> {
        if strategy == Strategy::Wrapped {
            return Err(Error::UnknownChoice {
                argument: "over_long",
                found: over_long.name().into(),
                legal: "\"split\": strategy \"wrapped\" cuts sequences where bins end",
            });
        }
        if over_long == OverLong::Split {
            return Err(Error::UnknownChoice {
                argument: "over_long",
                found: over_long.name().into(),
                legal: "\"error\", \"truncate\": `pack_pieces` splits",
            });
        }
        let (decided, bins, tokens) = if lengths.len() <= SMALL {
            let small = Small::new(lengths, max_length, strategy, over_long)?;
            let (bins, tokens) = (small.bins, small.tokens);
            (Decided::Small(small), bins, tokens)
        } else {
            let sorted = Sorted::new(lengths, max_length, over_long)?;
            let room = max_length as u64;
            let mut placement = Placement::default();
            match strategy {
                Strategy::FirstFitDecreasing => first_fit::place(&sorted, room, &mut placement),
                Strategy::BestFitDecreasing | Strategy::Wrapped => {
                    best_fit::place(&sorted, room, &mut placement);
                }
            }
            let (bins, tokens, order) = (placement.bins, sorted.tokens, sorted.order);
            (Decided::Many { order, placement }, bins, tokens)
        };
        let efficiency = if bins == 0 {
            1.0
        } else {
            tokens as f64 / (bins as u128 * u128::from(max_length as u64)) as f64
        };
        Ok(Self {
            decided,
            efficiency,
        })
    }

    /// Number of sequences.
    #[must_use]
    pub fn sequences(&self) -> usize {
        match &self.decided {
            Decided::Small(small) => small.count,
            Decided::Many { order, .. } => order.len(),
        }
    }

    /// Number of bins.
    #[must_use]
    pub fn bins(&self) -> usize {
        match &self.decided {
            Decided::Small(small) => small.bins,
            Decided::Many { placement, .. } => placement.bins,
        }
    }

    /// [`Packing::efficiency`].
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        self.efficiency
    }

    /// Writes every element of [`Packing::indices`] and [`Packing::offsets`].
    ///
    /// # Panics
    /// `indices` is not as long as there are sequences, or `offsets` has not one element more than there are bins.
    pub fn write(&self, indices: &mut [i64], offsets: &mut [i64]) {
        assert_eq!(indices.len(), self.sequences(), "one index per sequence");
        assert_eq!(
            offsets.len(),
            self.bins() + 1,
            "one offset per bin, and the end"
        );
        match &self.decided {
            Decided::Small(small) => small.write(indices, offsets),
            Decided::Many { order, placement } => placement.by_bin(order, indices, offsets),
        }
    }
}
