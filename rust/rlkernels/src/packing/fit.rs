//! Decreasing fits: in which bin each sequence goes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::choice::Strategy;
use super::order::from_long_to_short;

/// Which sequences, or pieces of sequences, go into which bin: bin `b` holds the pieces `offsets[b]..offsets[b + 1]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Packing {
    /// The sequence of each piece, bin after bin; a decreasing fit has the longest of a bin first.
    pub indices: Vec<i64>,
    /// Where each bin starts, and the end: one element more than there are bins, the first 0.
    pub offsets: Vec<i64>,
    /// The tokens kept over the room of all bins, in [0, 1]; 1 where there are no bins.
    pub efficiency: f64,
    /// With [`OverLong::Split`](super::OverLong::Split) where each piece starts in its sequence, else empty.
    pub starts: Vec<i64>,
    /// With [`OverLong::Split`](super::OverLong::Split) the tokens of each piece, at least one; else empty.
    pub sizes: Vec<i64>,
}

/// Packs lengths, cut to `max_length`, by a decreasing fit.
pub(super) fn pack(lengths: &[i64], max_length: u64, strategy: Strategy) -> Packing {
    let (order, runs) = from_long_to_short(lengths, max_length);
    let is_best = strategy == Strategy::BestFitDecreasing;
    let (steps, bins) = decreasing(&runs, max_length, is_best);
    let (indices, offsets) = by_bin(&order, &steps, bins);
    let tokens = runs
        .iter()
        .map(|&(length, count)| u128::from(length) * u128::from(count))
        .sum();
    Packing {
        indices,
        offsets,
        efficiency: efficiency(tokens, bins, max_length),
        starts: Vec::new(),
        sizes: Vec::new(),
    }
}

pub(super) fn efficiency(tokens: u128, bins: usize, max_length: u64) -> f64 {
    if bins == 0 {
        return 1.0;
    }
    tokens as f64 / (bins as u128 * u128::from(max_length)) as f64
}

/// (bin, number of sequences) for the sequences from long to short, and the number of bins.
///
/// A run of equal lengths fills each bin that it takes, so the bin waits until a shorter run fits into its room. Of the
/// bins that fit, best fit takes the fullest: those that waited until now are fuller than those that fitted before, so a
/// stack is sorted. First fit takes the first of a heap.
fn decreasing(runs: &[(u64, u32)], max_length: u64, is_best: bool) -> (Vec<(u32, u32)>, usize) {
    let turn_of = turns(runs, max_length);
    let mut steps = Vec::with_capacity(2 * runs.len());
    let mut bins: Vec<(u64, u32)> = Vec::with_capacity(runs.len()); // room, and the next that waits for the same run
    let mut waiting = vec![u32::MAX; runs.len()];
    let (mut stack, mut heap) = (Vec::new(), BinaryHeap::new());
    for (at, &(length, count)) in runs.iter().enumerate() {
        let (fitted, mut bin) = (stack.len(), waiting[at]);
        while let Some(&(room, next)) = bins.get(bin as usize) {
            if is_best {
                stack.push(Reverse((room, bin)));
            } else {
                heap.push(Reverse(bin));
            }
            bin = next;
        }
        if stack.len() > fitted + 1 {
            stack[fitted..].sort_unstable();
        }
        let mut count = u64::from(count);
        while count > 0 {
            let found = if is_best {
                stack.pop().map(|Reverse((_, bin))| bin)
            } else {
                heap.pop().map(|Reverse(bin)| bin)
            };
            let bin = found.unwrap_or(bins.len() as u32);
            if found.is_none() {
                bins.push((max_length, u32::MAX));
            }
            let (room, next) = &mut bins[bin as usize];
            let taken = match room.checked_div(length) {
                Some(fit) if count > 1 => fit.min(count),
                _ => count, // one of them fits, as does any number without tokens
            };
            *room -= taken * length;
            if let Some(first) = waiting.get_mut(turn_of(*room).max(at + 1)) {
                *next = std::mem::replace(first, bin);
            }
            steps.push((bin, taken as u32));
            count -= taken;
        }
    }
    (steps, bins.len())
}

/// The first run that fits into a room, by a table of about as many slots as runs.
fn turns(runs: &[(u64, u32)], max_length: u64) -> impl Fn(u64) -> usize {
    let shift = (max_length / (4 * runs.len() as u64 + 1) + 1).ilog2();
    let mut longer = vec![runs.len() as u32; (max_length >> shift) as usize + 2]; // runs at least as long as a slot
    let mut end = longer.len();
    for (at, run) in runs.iter().enumerate() {
        let start = end.min((run.0 >> shift) as usize + 1);
        longer[start..end].fill(at as u32);
        end = start;
    }
    move |room| {
        let slot = (room >> shift) as usize;
        let (low, high) = (longer[slot + 1] as usize, longer[slot] as usize);
        low + runs[low..high].partition_point(|run| run.0 > room)
    }
}

/// The sequences bin after bin, each in the order of placement, and where each bin starts.
fn by_bin(order: &[u32], steps: &[(u32, u32)], bins: usize) -> (Vec<i64>, Vec<i64>) {
    let mut ends = vec![0u32; bins + 1];
    for &(bin, count) in steps {
        ends[bin as usize + 1] += count;
    }
    for bin in 0..bins {
        ends[bin + 1] += ends[bin];
    }
    let offsets = ends.iter().copied().map(i64::from).collect();
    let (mut indices, mut rest) = (vec![0; order.len()], order);
    for &(bin, count) in steps {
        let these = rest.split_off(..count as usize).unwrap_or_default();
        let end = &mut ends[bin as usize];
        let slots = indices[*end as usize..].iter_mut();
        *end += count;
        for (slot, &index) in slots.zip(these) {
            *slot = i64::from(index);
        }
    }
    (indices, offsets)
}
