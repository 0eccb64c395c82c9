//! Best fit: for every remaining room a heap of the bins that have it, the first opened first.

use std::collections::BTreeMap;

use super::bitmap::Bitmap;
use super::order::Sorted;
use super::placement::{Placement, fitting};

/// Rooms up to which each has a slot of its own: 64 MB of address space, of which only what is used is touched.
const MOST_SLOTS: u64 = 1 << 24;
/// Slots per sequence above which a map of the rooms in use is cheaper than getting the memory of all.
const SLOTS_PER_SEQUENCE: u64 = 64;

pub(super) fn place(sorted: &Sorted, room: u64, placement: &mut Placement) {
    let slots = MOST_SLOTS.min(sorted.order.len() as u64 * SLOTS_PER_SEQUENCE);
    if room < slots {
        fill(sorted, room, Slots::new(room), placement);
    } else {
        fill(sorted, room, BTreeMap::new(), placement);
    }
}

fn fill(sorted: &Sorted, room: u64, mut rooms: impl Rooms, placement: &mut Placement) {
    let mut heaps = Heaps::default();
    for &(length, mut count) in &sorted.runs {
        while count > 0 {
            let (room, bin) = match rooms.least_from(length) {
                Some((room, heap)) => {
                    let (bin, rest) = heaps.pop(heap);
                    rooms.set(room, rest);
                    (room, bin)
                }
                None => (room, heaps.open()),
            };
            let taken = fitting(room, length, count);
            let left = room - u64::from(taken) * length;
            rooms.set(left, heaps.push(rooms.get(left), bin));
            placement.push(bin - 1, taken);
            count -= taken;
        }
    }
}

/// For each room left the heap of the bins that have it, 0 for none.
trait Rooms {
    /// The least room of at least `length` that a bin has.
    fn least_from(&self, length: u64) -> Option<(u64, u32)>;
    fn get(&self, room: u64) -> u32;
    fn set(&mut self, room: u64, heap: u32);
}

struct Slots {
    heaps: Vec<u32>,
    used: Bitmap,
}

impl Slots {
    fn new(room: u64) -> Self {
        let size = room as usize + 1;
        Self {
            heaps: vec![0; size],
            used: Bitmap::new(size),
        }
    }
}

impl Rooms for Slots {
    fn least_from(&self, length: u64) -> Option<(u64, u32)> {
        let room = self.used.next(length as usize)?;
        Some((room as u64, self.heaps[room]))
    }

    fn get(&self, room: u64) -> u32 {
        self.heaps[room as usize]
    }

    fn set(&mut self, room: u64, heap: u32) {
        let before = std::mem::replace(&mut self.heaps[room as usize], heap);
        match (before, heap) {
            (0, 0) => {}
            (_, 0) => self.used.remove(room as usize),
            (0, _) => self.used.insert(room as usize),
            _ => {}
        }
    }
}

impl Rooms for BTreeMap<u64, u32> {
    fn least_from(&self, length: u64) -> Option<(u64, u32)> {
        self.range(length..)
            .next()
            .map(|(&room, &heap)| (room, heap))
    }

    fn get(&self, room: u64) -> u32 {
        BTreeMap::get(self, &room).copied().unwrap_or(0)
    }

    fn set(&mut self, room: u64, heap: u32) {
        if heap == 0 {
            self.remove(&room);
        } else {
            self.insert(room, heap);
        }
    }
}

/// Pairing heaps of bins, lowest first, all in one array (Fredman et al., "The pairing heap", 1986).
///
/// Bins count from 1 and 0 is no bin; a heap is named by its lowest bin. A bin is in one heap at most.
struct Heaps {
    links: Vec<Links>,
}

#[derive(Clone, Copy, Default)]
struct Links {
    child: u32,
    sibling: u32,
}

impl Default for Heaps {
    fn default() -> Self {
        Self {
            links: vec![Links::default()],
        }
    }
}

impl Heaps {
    /// A new bin, in no heap.
    fn open(&mut self) -> u32 {
        self.links.push(Links::default());
        self.links.len() as u32 - 1
    }

    fn push(&mut self, heap: u32, bin: u32) -> u32 {
        self.links[bin as usize] = Links::default();
        self.merge(heap, bin)
    }

    /// The lowest bin, and the heap without it.
    fn pop(&mut self, heap: u32) -> (u32, u32) {
        let mut pairs = 0; // merged two by two, the last pair first
        let mut next = self.links[heap as usize].child;
        while next != 0 {
            let first = next;
            let second = std::mem::take(&mut self.links[first as usize].sibling);
            next = match second {
                0 => 0,
                _ => std::mem::take(&mut self.links[second as usize].sibling),
            };
            let pair = self.merge(first, second);
            self.links[pair as usize].sibling = pairs;
            pairs = pair;
        }
        let mut rest = 0;
        while pairs != 0 {
            let pair = pairs;
            pairs = std::mem::take(&mut self.links[pair as usize].sibling);
            rest = self.merge(rest, pair);
        }
        (heap, rest)
    }

    /// One heap of two without siblings.
    fn merge(&mut self, a: u32, b: u32) -> u32 {
        if a == 0 || b == 0 {
            return a + b;
        }
        let (parent, child) = (a.min(b), a.max(b));
        self.links[child as usize].sibling = self.links[parent as usize].child;
        self.links[parent as usize].child = child;
        parent
    }
}
