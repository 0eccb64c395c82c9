//! First fit: the bins' room in a tree of the greatest room below each node.

use super::order::Sorted;
use super::placement::{Placement, fitting};

/// Children of a node: 16 rooms of 32 bits are one cache line, and a search looks at all of them at once.
const FAN: usize = 16;

pub(super) fn place(sorted: &Sorted, room: u64, placement: &mut Placement) {
    let bins = most_bins(sorted, room);
    if let Ok(room) = u32::try_from(room) {
        fill(sorted, &mut Tree::new(bins, room), placement);
    } else {
        fill(sorted, &mut Tree::new(bins, room), placement);
    }
}

/// First fit leaves at most one bin that is not more than half full: two of them would be one.
fn most_bins(sorted: &Sorted, room: u64) -> usize {
    let halves = 2 * (sorted.tokens / u128::from(room)) + 2;
    usize::try_from(halves).map_or(sorted.order.len(), |bins| bins.min(sorted.order.len()))
}

fn fill<R: Room>(sorted: &Sorted, tree: &mut Tree<R>, placement: &mut Placement) {
    for &(length, mut count) in &sorted.runs {
        let wanted = R::narrow(length);
        while count > 0 {
            let bin = tree.first_with(wanted);
            let room = tree.room(bin).widen();
            let taken = fitting(room, length, count);
            tree.set(bin, R::narrow(room - u64::from(taken) * length));
            placement.push(bin as u32, taken);
            count -= taken;
        }
    }
}

/// Room in a bin: 32 bits where they suffice, because the tree is read far more than anything else.
trait Room: Copy + Ord + Default {
    fn narrow(room: u64) -> Self;
    fn widen(self) -> u64;
}

impl Room for u32 {
    fn narrow(room: u64) -> Self {
        room as Self
    }
    fn widen(self) -> u64 {
        u64::from(self)
    }
}

impl Room for u64 {
    fn narrow(room: u64) -> Self {
        room
    }
    fn widen(self) -> u64 {
        self
    }
}

/// Levels from the root, which is one node, to the bins; in each, nodes of `FAN` slots that hold the greatest room below.
struct Tree<R> {
    levels: Vec<Vec<[R; FAN]>>,
}

impl<R: Room> Tree<R> {
    /// All bins are empty; those not opened yet stand after the opened ones, so the first that fits is right for both.
    fn new(bins: usize, room: R) -> Self {
        let mut levels = Vec::new();
        let mut slots = bins;
        loop {
            let nodes = slots.div_ceil(FAN).max(1);
            let mut level = vec![[room; FAN]; nodes];
            for missing in slots..nodes * FAN {
                level[missing / FAN][missing % FAN] = R::default();
            }
            levels.push(level);
            if nodes == 1 {
                break;
            }
            slots = nodes;
        }
        levels.reverse();
        Self { levels }
    }

    /// The first bin with this much room. There is one: the tree holds as many bins as first fit can open.
    fn first_with(&self, length: R) -> usize {
        let mut at = 0;
        for level in &self.levels {
            let fits: u32 = level[at]
                .iter()
                .enumerate()
                .map(|(slot, &room)| u32::from(room >= length) << slot)
                .sum();
            at = at * FAN + (fits.trailing_zeros() as usize).min(FAN - 1);
        }
        at
    }

    fn room(&self, bin: usize) -> R {
        self.levels[self.levels.len() - 1][bin / FAN][bin % FAN]
    }

    fn set(&mut self, bin: usize, room: R) {
        let (mut at, mut room) = (bin, room);
        for level in self.levels.iter_mut().rev() {
            let node = &mut level[at / FAN];
            let before = std::mem::replace(&mut node[at % FAN], room);
            room = node.iter().copied().fold(R::default(), R::max);
            if room >= before {
                break; // another bin has as much: nothing changes above
            }
            at /= FAN;
        }
    }
}
