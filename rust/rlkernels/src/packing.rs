//! Packing of sequences into bins of bounded length.

use crate::{Error, Result};

/// Which sequences go into which bin: bin `b` holds `indices[offsets[b]..offsets[b + 1]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// A permutation of `0..n`, bin after bin; inside a bin in the order of placement (longest first).
    pub indices: Vec<i64>,
    /// Where each bin starts, and the end: one element more than there are bins, the first 0.
    pub offsets: Vec<i64>,
}

/// Packs sequences first-fit-decreasing: longest first, each into the first bin that still has room.
///
/// `lengths` (n) and `max_length` are in tokens. Equal lengths keep their original order. A sequence of length 0 takes
/// no room and goes into the first bin. O(n log n): the bins' room stands in a tournament tree. Uses at most
/// ⌊11/9 · optimum + 6/9⌋ bins (Dósa, "The tight bound of first fit decreasing bin-packing algorithm", 2007).
///
/// # Errors
/// `max_length` below 1; a length that is negative or above `max_length`, with its index and value.
pub fn pack_sequences(lengths: &[i64], max_length: i64) -> Result<Packing> {
    if max_length < 1 {
        return Err(Error::TooSmall {
            argument: "max_length",
            found: max_length,
            least: 1,
        });
    }
    if let Some(index) = lengths.iter().position(|&n| n < 0 || n > max_length) {
        return Err(Error::Length {
            index,
            found: lengths[index],
            most: max_length,
            limit: "`max_length`",
        });
    }
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(lengths[index])); // stable: ties keep their order
    let mut room = Room::new(lengths.len(), max_length);
    let placed: Vec<(usize, usize)> = order
        .into_iter()
        .map(|index| (index, room.take_first(lengths[index])))
        .collect();
    Ok(by_bin(&placed))
}

/// Counting sort of (sequence, bin) by bin; stable, so a bin keeps the order of placement.
fn by_bin(placed: &[(usize, usize)]) -> Packing {
    let bins = placed.iter().map(|&(_, bin)| bin + 1).max().unwrap_or(0);
    let mut offsets = vec![0i64; bins + 1];
    for &(_, bin) in placed {
        offsets[bin + 1] += 1;
    }
    for bin in 0..bins {
        offsets[bin + 1] += offsets[bin];
    }
    let mut next = offsets.clone();
    let mut indices = vec![0i64; placed.len()];
    for &(index, bin) in placed {
        indices[next[bin] as usize] = index as i64;
        next[bin] += 1;
    }
    Packing { indices, offsets }
}

/// The room left in each bin, as a binary tree whose inner nodes hold the greatest room below them.
struct Room {
    tree: Vec<i64>,
    leaves: usize,
}

impl Room {
    /// As many empty bins as sequences: never more are needed, and unopened ones stand after all opened ones.
    fn new(bins: usize, capacity: i64) -> Self {
        let leaves = bins.next_power_of_two();
        Self {
            tree: vec![capacity; 2 * leaves],
            leaves,
        }
    }

    /// Takes `length` from the first bin with that much room and returns the bin.
    fn take_first(&mut self, length: i64) -> usize {
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.tree[node] < length {
                node += 1; // a parent's room is the greater of its children's: the right one has it
            }
        }
        self.tree[node] -= length;
        let bin = node - self.leaves;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].max(self.tree[2 * node + 1]);
        }
        bin
    }
}
