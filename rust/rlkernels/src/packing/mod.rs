//! Packing of sequences into bins of bounded length.

mod choice;
mod fit;
mod order;
mod pieces;

pub use choice::{OverLong, Strategy};
pub use fit::Packing;

use crate::error::{at_least, at_most, lengths_within};
use crate::{Error, Result};

/// Packs sequences into the bins that the strategy names; O(n log n).
///
/// `lengths` (n) and `max_length` are in tokens. A decreasing fit takes the longest first, equal lengths in their order.
/// A sequence of length 0 takes no room: it goes into the first bin (first-fit) or into the fullest (best-fit), and opens
/// one only if there is none. [`OverLong::Split`] gives it no piece, cuts the others after every `max_length` tokens and
/// packs the pieces as sequences (TRL's `bfd_split`, `wrapped`).
///
/// ```
/// use rlkernels::packing::{OverLong, Strategy, pack_sequences};
///
/// // Bins of 7: 5, then 3 and 3 together; the 1 goes to the fullest bin with room.
/// let packing = pack_sequences(&[5, 3, 3, 1], 7, Strategy::BestFitDecreasing, OverLong::Error)?;
/// assert_eq!((packing.indices, packing.offsets), (vec![0, 1, 2, 3], vec![0, 1, 4]));
///
/// let wrapped = pack_sequences(&[3, 6], 4, Strategy::Wrapped, OverLong::Split)?;
/// assert_eq!((wrapped.indices, wrapped.starts), (vec![0, 1, 1, 1], vec![0, 0, 1, 5]));
/// assert_eq!((wrapped.sizes, wrapped.offsets), (vec![3, 1, 4, 1], vec![0, 2, 3, 4]));
/// # Ok::<(), rlkernels::Error>(())
/// ```
///
/// # Errors
/// `max_length` below 1; a length that is negative, or above `max_length` with [`OverLong::Error`], with its index and
/// value; 2³² − 1 sequences or pieces or more; [`Strategy::Wrapped`] without [`OverLong::Split`].
pub fn pack_sequences(
    lengths: &[i64],
    max_length: i64,
    strategy: Strategy,
    over_long: OverLong,
) -> Result<Packing> {
    if strategy == Strategy::Wrapped && over_long != OverLong::Split {
        return Err(Error::UnknownChoice {
            argument: "over_long",
            found: over_long.name().into(),
            legal: "\"split\": strategy \"wrapped\" cuts sequences where bins end",
        });
    }
    at_least("max_length", max_length, 1)?;
    let longest = match over_long {
        OverLong::Error => max_length,
        OverLong::Truncate | OverLong::Split => i64::MAX,
    };
    lengths_within(lengths, longest, "`max_length`")?;
    if over_long == OverLong::Split {
        return pieces::pack(lengths, max_length, strategy);
    }
    at_most("lengths", lengths.len(), pieces::MOST)?;
    Ok(fit::pack(lengths, max_length as u64, strategy))
}
