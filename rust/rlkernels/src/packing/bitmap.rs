//! A set of small numbers that finds the least member from a number on in a few steps.

/// Levels of 64-bit words; a bit of one level says whether the word below it has any bit set.
pub(super) struct Bitmap {
    levels: Vec<Vec<u64>>, // the members first, the single root word last
}

impl Bitmap {
    /// The empty subset of `0..size`.
    pub(super) fn new(size: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = size.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
            words = words.div_ceil(64);
        }
    }

    pub(super) fn insert(&mut self, member: usize) {
        let mut at = member;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let before = std::mem::replace(word, *word | 1 << (at % 64));
            if before != 0 {
                return;
            }
            at /= 64;
        }
    }

    pub(super) fn remove(&mut self, member: usize) {
        let mut at = member;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The least member that is at least `from`.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for (height, level) in self.levels.iter().enumerate() {
            let rest = level.get(at / 64)? >> (at % 64);
            if rest != 0 {
                let found = at + rest.trailing_zeros() as usize;
                return Some(self.descend(height, found));
            }
            at = at / 64 + 1; // the words after this one
        }
        None
    }

    /// The least member below a set bit.
    fn descend(&self, height: usize, bit: usize) -> usize {
        self.levels[..height].iter().rev().fold(bit, |at, level| {
            at * 64 + level[at].trailing_zeros() as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bitmap;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn finds_what_an_ordered_set_finds(
            size in 1usize..10_000, changes in prop::collection::vec((any::<bool>(), any::<u16>()), 0..300),
        ) {
            let (mut bitmap, mut set) = (Bitmap::new(size), BTreeSet::new());
            for (insert, number) in changes {
                let number = usize::from(number) % size;
                if insert {
                    bitmap.insert(number);
                    set.insert(number);
                } else {
                    bitmap.remove(number);
                    set.remove(&number);
                }
                for from in [0, number.saturating_sub(70), number, number + 1, size] {
                    prop_assert_eq!(bitmap.next(from), set.range(from..).next().copied());
                }
            }
        }
    }
}
