//! Packing of sequences into bins of bounded length.

mod choice;
mod fit;
mod order;
mod pieces;

pub use choice::{OverLong, Strategy};
pub use pieces::{Pieces, pack_pieces};

use crate::{Error, Result};

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
    let legal = match (strategy, over_long) {
        (Strategy::Wrapped, _) => "\"split\": strategy \"wrapped\" cuts sequences where bins end",
        (_, OverLong::Split) => "\"error\", \"truncate\": `pack_pieces` splits",
        _ => "",
    };
    if !legal.is_empty() {
        return Err(Error::UnknownChoice {
            argument: "over_long",
            found: over_long.name().into(),
            legal,
        });
    }
    order::check(lengths, max_length, over_long)?;
    let max_length = max_length as u64;
    let (order, runs) = order::from_long_to_short(lengths, max_length);
    let is_best = strategy == Strategy::BestFitDecreasing;
    let (steps, bins) = fit::decreasing(&runs, max_length, is_best);
    let (indices, offsets) = fit::by_bin(&order, &steps, bins);
    let tokens = runs
        .iter()
        .map(|&(length, count)| u128::from(length) * u128::from(count))
        .sum();
    Ok(Packing {
        indices,
        efficiency: efficiency(tokens, bins, max_length),
        offsets,
    })
}

fn efficiency(tokens: u128, bins: usize, max_length: u64) -> f64 {
    if bins == 0 {
        return 1.0;
    }
    tokens as f64 / (bins as u128 * u128::from(max_length)) as f64
}
