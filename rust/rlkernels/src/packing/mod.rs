//! Packing of sequences into bins of bounded length.
//!
//! Both strategies take the longest sequence first, equal lengths by index. So sequences come in runs of one length, and
//! what a strategy decides is into which bin how many of a run go: the bin that it prefers now it prefers until the
//! length no longer fits, because every bin it prefers to that one is too full already.

mod best_fit;
mod bitmap;
mod first_fit;
mod order;

use std::str::FromStr;

use crate::{Error, Result};
use order::Sorted;

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
/// # Errors
/// `max_length` below 1; a length that is negative, or above `max_length` unless [`OverLong::Truncate`] is asked for,
/// with its index and value; 2³² − 1 sequences or more.
pub fn pack_sequences(
    lengths: &[i64],
    max_length: i64,
    strategy: Strategy,
    over_long: OverLong,
) -> Result<Packing> {
    let sorted = Sorted::new(lengths, max_length, over_long)?;
    let room = max_length as u64;
    let mut placed = Placed::default();
    match strategy {
        Strategy::FirstFitDecreasing => first_fit::place(&sorted, room, &mut placed),
        Strategy::BestFitDecreasing => best_fit::place(&sorted, room, &mut placed),
    }
    let (indices, offsets) = placed.by_bin(&sorted.order);
    let bins = offsets.len() - 1;
    let efficiency = if bins == 0 {
        1.0
    } else {
        sorted.tokens as f64 / (bins as u128 * u128::from(room)) as f64
    };
    Ok(Packing {
        indices,
        offsets,
        efficiency,
    })
}

/// How many sequences go into which bin, in the order of the sorted sequences.
#[derive(Default)]
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
    fn by_bin(&self, order: &[u32]) -> (Vec<i64>, Vec<i64>) {
        let mut next = vec![0u32; self.bins];
        for &(bin, count) in &self.steps {
            next[bin as usize] += count;
        }
        let mut offsets = Vec::with_capacity(self.bins + 1);
        let mut end = 0u32;
        offsets.push(0);
        for start in &mut next {
            (*start, end) = (end, end + *start);
            offsets.push(i64::from(end));
        }
        let mut indices = vec![0i64; order.len()];
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
        (indices, offsets)
    }
}

/// How many of `count` sequences of this length fit into the room; a length of 0 always does.
fn fitting(room: u64, length: u64, count: u32) -> u32 {
    match room.checked_div(length) {
        Some(fit) if fit < u64::from(count) => fit as u32,
        _ => count,
    }
}
