//! Sequences from long to short.

use super::choice::OverLong;
use crate::{Error, Result};

/// The most sequences or pieces of one call: their numbers are kept as 32 bits, which halves the memory that is moved.
const MOST: usize = u32::MAX as usize - 1;

pub(super) fn check_count(argument: &'static str, count: u128) -> Result<()> {
    if count <= MOST as u128 {
        return Ok(());
    }
    Err(Error::TooMany {
        argument,
        found: usize::try_from(count).unwrap_or(usize::MAX),
        most: MOST,
    })
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
    check_count("lengths", lengths.len() as u128)?;
    let is_cut = over_long == OverLong::Truncate;
    let most = if is_cut { i64::MAX } else { max_length };
    let is_wrong = |n: &i64| !(0..=most).contains(n);
    // Without a branch per element; the wrong one is searched only where there is one.
    if !lengths.iter().fold(false, |any, n| any | is_wrong(n)) {
        return Ok(());
    }
    let index = lengths.iter().position(is_wrong).unwrap_or_default();
    let found = lengths[index];
    Err(if is_cut {
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
}

/// The most counters of a counting sort: 2²⁰ of 32 bits are 4 MB.
const MOST_COUNTERS: u64 = 1 << 20;

/// The sequences from long to short, equal lengths by index, and (length, number of sequences of that length) of each run.
pub(super) fn from_long_to_short(lengths: &[i64], max_length: u64) -> (Vec<u32>, Vec<(u64, u32)>) {
    let lengths = lengths
        .iter()
        .map(|&length| (length as u64).min(max_length));
    let mut runs: Vec<(u64, u32)> = Vec::new();
    if max_length >= MOST_COUNTERS || max_length / 16 > lengths.len() as u64 {
        let mut keyed: Vec<_> = lengths.map(|length| !length).zip(0u32..).collect(); // falling lengths are rising keys
        keyed.sort_unstable();
        for run in keyed.chunk_by(|a, b| a.0 == b.0) {
            runs.push((!run[0].0, run.len() as u32));
        }
        return (keyed.into_iter().map(|(_, index)| index).collect(), runs);
    }
    let mut next = vec![0u32; max_length as usize + 1];
    let mut order = vec![0u32; lengths.len()];
    for length in lengths.clone() {
        next[length as usize] += 1;
    }
    let mut start = 0;
    for (length, slot) in next.iter_mut().enumerate().rev() {
        let here = std::mem::replace(slot, start);
        if here > 0 {
            runs.push((length as u64, here));
            start += here;
        }
    }
    for (index, length) in lengths.enumerate() {
        let slot = &mut next[length as usize];
        order[*slot as usize] = index as u32;
        *slot += 1;
    }
    (order, runs)
}
