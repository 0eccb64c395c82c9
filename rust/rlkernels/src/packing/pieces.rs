//! Sequences that are cut into pieces, and the bins of the pieces.

use super::choice::{OverLong, Strategy};
use super::order::{check, check_count};
use super::{efficiency, pack_sequences};
use crate::Result;

/// Which tokens go into which bin: bin `b` holds the pieces `offsets[b]..offsets[b + 1]`, and piece `j` is the tokens
/// `starts[j]..starts[j] + sizes[j]` of sequence `indices[j]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pieces {
    /// The sequence of each piece, bin after bin.
    pub indices: Vec<i64>,
    /// Where each piece starts in its sequence.
    pub starts: Vec<i64>,
    /// The tokens of each piece, at least one.
    pub sizes: Vec<i64>,
    /// Where each bin starts, and the end: one element more than there are bins, the first 0.
    pub offsets: Vec<i64>,
    /// The tokens over the room of all bins, in [0, 1]; 1 where there are no bins.
    pub efficiency: f64,
}

/// Packs sequences of any length without losing a token; a sequence without tokens has no piece.
///
/// A decreasing fit cuts each sequence after every `max_length` tokens and packs the pieces as if they were sequences, in
/// the order in which they were cut (TRL's `bfd_split`). [`Strategy::Wrapped`] writes all sequences one after the other
/// and cuts where bins end, so that all bins but the last are full (TRL's `wrapped`).
///
/// ```
/// use rlkernels::packing::{Strategy, pack_pieces};
///
/// let wrapped = pack_pieces(&[3, 6], 4, Strategy::Wrapped)?;
/// assert_eq!((wrapped.indices, wrapped.starts, wrapped.sizes), (vec![0, 1, 1, 1], vec![0, 0, 1, 5], vec![3, 1, 4, 1]));
/// assert_eq!(wrapped.offsets, [0, 2, 3, 4]);
/// # Ok::<(), rlkernels::Error>(())
/// ```
///
/// # Errors
/// `max_length` below 1; a negative length, with its index and value; 2³² − 1 pieces or more.
pub fn pack_pieces(lengths: &[i64], max_length: i64, strategy: Strategy) -> Result<Pieces> {
    check(lengths, max_length, OverLong::Truncate)?;
    let tokens: u128 = lengths.iter().map(|&length| length as u128).sum();
    let most = tokens / max_length as u128 + lengths.len() as u128 + 1; // each end of a bin adds one
    check_count("the pieces of all sequences", most)?;
    let is_wrapped = strategy == Strategy::Wrapped;
    let (mut pieces, mut offsets) = (Vec::with_capacity(most as usize), Vec::new());
    let mut filled = 0; // of the bin that is being wrapped
    for (index, &length) in lengths.iter().enumerate() {
        let mut start = 0;
        while start < length {
            if filled == 0 && is_wrapped {
                offsets.push(pieces.len() as i64);
            }
            let size = (max_length - filled).min(length - start);
            pieces.push((index as i64, start, size));
            start += size;
            if is_wrapped {
                filled = (filled + size) % max_length;
            }
        }
    }
    let mut efficiency = efficiency(tokens, offsets.len(), max_length as u64);
    if is_wrapped {
        offsets.push(pieces.len() as i64);
    } else {
        let sizes: Vec<i64> = pieces.iter().map(|&(.., size)| size).collect();
        let packing = pack_sequences(&sizes, max_length, strategy, OverLong::Error)?;
        pieces = packing
            .indices
            .iter()
            .map(|&piece| pieces[piece as usize])
            .collect();
        (offsets, efficiency) = (packing.offsets, packing.efficiency);
    }
    Ok(Pieces {
        indices: pieces.iter().map(|&(index, ..)| index).collect(),
        starts: pieces.iter().map(|&(_, start, _)| start).collect(),
        sizes: pieces.iter().map(|&(.., size)| size).collect(),
        offsets,
        efficiency,
    })
}
