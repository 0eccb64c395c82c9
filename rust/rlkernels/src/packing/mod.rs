//! Packing of sequences into bins of bounded length.
//!
//! Both strategies take the longest sequence first, equal lengths by index. So sequences come in runs of one length, and
//! what a strategy decides is into which bin how many of a run go: the bin that it prefers now it prefers until the
//! length no longer fits, because every bin it prefers to that one is too full already.

mod best_fit;
mod bitmap;
mod few;
mod first_fit;
mod order;

use std::str::FromStr;

use crate::{Error, Result};
use few::{FEW, Few};
use order::{Sorted, check};

/// Which bin among those with room a sequence goes into; if there is none, a new bin is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The first one opened. Uses at most ⌊11/9 · optimum + 6/9⌋ bins (Dósa, "The tight bound of first fit decreasing
    /// bin-packing algorithm", 2007).
    FirstFitDecreasing,
    /// The fullest one, of equally full ones the first opened (Johnson, "Near-optimal bin packing algorithms", 1973).
    BestFitDecreasing,
}

impl FromStr for Strategy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "first-fit-decreasing" => Ok(Self::FirstFitDecreasing),
            "best-fit-decreasing" => Ok(Self::BestFitDecreasing),
            _ => Err(Error::UnknownChoice {
                argument: "strategy",
                found: name.into(),
                legal: "\"first-fit-decreasing\", \"best-fit-decreasing\"",
            }),
        }
    }
}

/// What happens to a sequence longer than a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverLong {
    /// It is an error that names the sequence.
    Error,
    /// It counts, and is to be cut by the caller, as `max_length` tokens.
    Truncate,
}

impl FromStr for OverLong {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "error" => Ok(Self::Error),
            "truncate" => Ok(Self::Truncate),
            _ => Err(Error::UnknownChoice {
                argument: "over_long",
                found: name.into(),
                legal: "\"error\", \"truncate\"",
            }),
        }
    }
}

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

/// The most sequences of one call: their numbers are kept as 32 bits, which halves the memory that is moved.
const MOST_SEQUENCES: usize = u32::MAX as usize - 1;

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
/// with its index and value; 2³² − 1 sequences or more.
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

/// A packing that is decided and not yet written: for who has memory of their own for it.
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
    Few(Few),
    Many { order: Vec<u32>, placed: Placed },
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
        let (decided, bins, tokens) = if lengths.len() <= FEW {
            let few = Few::new(lengths, max_length, strategy, over_long)?;
            let (bins, tokens) = (few.bins, few.tokens);
            (Decided::Few(few), bins, tokens)
        } else {
            let sorted = Sorted::new(lengths, max_length, over_long)?;
            let room = max_length as u64;
            let mut placed = Placed::default();
            match strategy {
                Strategy::FirstFitDecreasing => first_fit::place(&sorted, room, &mut placed),
                Strategy::BestFitDecreasing => best_fit::place(&sorted, room, &mut placed),
            }
            let (bins, tokens, order) = (placed.bins, sorted.tokens, sorted.order);
            (Decided::Many { order, placed }, bins, tokens)
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
            Decided::Few(few) => few.count,
            Decided::Many { order, .. } => order.len(),
        }
    }

    /// Number of bins.
    #[must_use]
    pub fn bins(&self) -> usize {
        match &self.decided {
            Decided::Few(few) => few.bins,
            Decided::Many { placed, .. } => placed.bins,
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
            Decided::Few(few) => few.write(indices, offsets),
            Decided::Many { order, placed } => placed.by_bin(order, indices, offsets),
        }
    }
}

/// How many sequences go into which bin, in the order of the sorted sequences.
#[derive(Debug, Clone, Default)]
struct Placed {
    steps: Vec<(u32, u32)>, // (bin, number of sequences)
    bins: usize,
}

impl Placed {
    fn push(&mut self, bin: u32, count: u32) {
        self.steps.push((bin, count));
        self.bins = self.bins.max(bin as usize + 1);
    }

    /// Counting sort of the sequences by bin; stable, so a bin keeps the order of placement.
    fn by_bin(&self, order: &[u32], indices: &mut [i64], offsets: &mut [i64]) {
        let mut next = vec![0u32; self.bins];
        for &(bin, count) in &self.steps {
            next[bin as usize] += count;
        }
        let mut end = 0u32;
        offsets[0] = 0;
        for (start, offset) in next.iter_mut().zip(&mut offsets[1..]) {
            (*start, end) = (end, end + *start);
            *offset = i64::from(end);
        }
        let mut rest = order;
        for &(bin, count) in &self.steps {
            let (these, after) = rest.split_at(count as usize);
            rest = after;
            let start = next[bin as usize] as usize;
            next[bin as usize] += count;
            for (slot, &index) in indices[start..start + these.len()].iter_mut().zip(these) {
                *slot = i64::from(index);
            }
        }
    }
}

/// How many of `count` sequences of this length fit into the room; a length of 0 always does.
fn fitting(room: u64, length: u64, count: u32) -> u32 {
    match room.checked_div(length) {
        Some(fit) if fit < u64::from(count) => fit as u32,
        _ => count,
    }
}
