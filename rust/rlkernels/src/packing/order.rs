//! Sequences from long to short, as runs of equal length.

use super::choice::OverLong;
use crate::{Error, Result};

/// The most sequences of one call: their numbers are kept as 32 bits, which halves the memory that is moved.
pub(super) const MOST_SEQUENCES: usize = u32::MAX as usize - 1;

/// The most counters of a counting sort: 2²⁰ of 32 bits are 4 MB.
const MOST_COUNTERS: u64 = 1 << 20;

/// The sequences from long to short, equal lengths by index.
pub(super) struct Sorted {
    pub(super) order: Vec<u32>,
    /// (length, number of sequences of that length), the lengths falling.
    pub(super) runs: Vec<(u64, u32)>,
    /// The sum of the lengths, cut ones as cut.
    pub(super) tokens: u128,
}

impl Sorted {
    pub(super) fn new(lengths: &[i64], max_length: i64, over_long: OverLong) -> Result<Self> {
        check(lengths, max_length, over_long)?;
        let most = max_length as u64;
        let length_of = |index: usize| (lengths[index] as u64).min(most);
        let is_narrow = most < MOST_COUNTERS && most / 16 <= lengths.len() as u64; // else clearing the counters costs more
        let (order, runs) = if is_narrow {
            by_counting(lengths.len(), most as usize, length_of)
        } else {
            by_comparing(lengths.len(), length_of)
        };
        let tokens = runs
            .iter()
            .map(|&(length, count)| u128::from(length) * u128::from(count))
            .sum();
        Ok(Self {
            order,
            runs,
            tokens,
        })
    }
}

/// The errors of a packing's arguments.
pub(super) fn check(lengths: &[i64], max_length: i64, over_long: OverLong) -> Result<()> {
    if max_length < 1 {
        return Err(Error::TooSmall {
            argument: "max_length",
            found: max_length,
            least: 1,
        });
    }
    if lengths.len() > MOST_SEQUENCES {
        return Err(Error::TooMany {
            argument: "lengths",
            found: lengths.len(),
            most: MOST_SEQUENCES,
        });
    }
    // Without a branch per element; the wrong one is searched only where there is one.
    let (least, greatest) = lengths
        .iter()
        .fold((0, 0), |(a, b), &n| (n.min(a), n.max(b)));
    let cut = over_long == OverLong::Truncate;
    if least >= 0 && (cut || greatest <= max_length) {
        return Ok(());
    }
    let wrong = |&n: &i64| n < 0 || (!cut && n > max_length);
    lengths.iter().position(wrong).map_or(Ok(()), |index| {
        let found = lengths[index];
        Err(if cut {
            Error::Negative {
                argument: "lengths",
                index,
                found,
            }
        } else {
            Error::Length {
                index,
                found,
                most: max_length,
                limit: "`max_length`",
            }
        })
    })
}

type Order = (Vec<u32>, Vec<(u64, u32)>);

fn by_counting(count: usize, most: usize, length_of: impl Fn(usize) -> u64) -> Order {
    let mut next = vec![0u32; most + 1];
    for index in 0..count {
        next[length_of(index) as usize] += 1;
    }
    let mut runs = Vec::new();
    let mut start = 0;
    for (length, slot) in next.iter_mut().enumerate().rev() {
        let here = std::mem::replace(slot, start);
        if here > 0 {
            runs.push((length as u64, here));
            start += here;
        }
    }
    let mut order = vec![0u32; count];
    for index in 0..count {
        let slot = &mut next[length_of(index) as usize];
        order[*slot as usize] = index as u32;
        *slot += 1;
    }
    (order, runs)
}

fn by_comparing(count: usize, length_of: impl Fn(usize) -> u64) -> Order {
    let mut keyed: Vec<(u64, u32)> = (0..count)
        .map(|index| (!length_of(index), index as u32)) // the complement: falling lengths are rising keys
        .collect();
    keyed.sort_unstable();
    let mut runs: Vec<(u64, u32)> = Vec::new();
    for &(key, _) in &keyed {
        match runs.last_mut() {
            Some((length, number)) if *length == !key => *number += 1,
            _ => runs.push((!key, 1)),
        }
    }
    (keyed.into_iter().map(|(_, index)| index).collect(), runs)
}
