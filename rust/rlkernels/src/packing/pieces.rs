//! Sequences that are cut into pieces, and the bins of the pieces.

use super::choice::Strategy;
use super::fit::{self, Packing, efficiency};
use crate::Result;
use crate::error::at_most;

/// The most sequences or pieces of one call: their numbers are kept as 32 bits, which halves the memory that is moved.
pub(super) const MOST: usize = u32::MAX as usize - 1;

/// Cuts each sequence after every `max_length` tokens, [`Strategy::Wrapped`] where bins end, and packs the pieces.
pub(super) fn pack(lengths: &[i64], max_length: i64, strategy: Strategy) -> Result<Packing> {
    let tokens: u128 = lengths.iter().map(|&length| length as u128).sum();
    let most = tokens / max_length as u128 + lengths.len() as u128 + 1; // each end of a bin adds one
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    at_most("the pieces of all sequences", most, MOST)?;
    let is_wrapped = strategy == Strategy::Wrapped;
    let (mut pieces, mut offsets) = (Vec::with_capacity(most), Vec::new());
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
    offsets.push(pieces.len() as i64);
    if !is_wrapped {
        let sizes: Vec<i64> = pieces.iter().map(|&(.., size)| size).collect();
        let packing = fit::pack(&sizes, max_length as u64, strategy);
        let placed = packing.indices.iter().map(|&piece| pieces[piece as usize]);
        pieces = placed.collect();
        (offsets, efficiency) = (packing.offsets, packing.efficiency);
    }
    Ok(Packing {
        indices: pieces.iter().map(|&(index, ..)| index).collect(),
        starts: pieces.iter().map(|&(_, start, _)| start).collect(),
        sizes: pieces.iter().map(|&(.., size)| size).collect(),
        offsets,
        efficiency,
    })
}
