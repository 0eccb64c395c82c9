//! How kernels with one body over eight lanes walk through rows: whole groups of eight slots, then a padded rest.

use crate::data::Data;
use crate::isa::{F64_LANES, Kernel, Simd, dispatch};
use crate::rows::{Rows, Valid};

/// Slots of a part, at least: the unit of work of a thread. Fixed, so the number of threads changes no bit.
const PART_SLOTS: usize = 8192;

/// Where a row lies, and how many of its slots are tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The slots behind this one are no tokens.
    pub(crate) valid_end: usize,
    pub(crate) tokens: usize,
}

/// The rows' places. The layout must have passed [`Rows::check`].
pub(crate) fn places(rows: &Rows<'_>) -> Vec<Place> {
    match *rows {
        Rows::Padded { rows, width, valid } => (0..rows)
            .map(|row| {
                let (start, end) = (row * width, (row + 1) * width);
                let tokens = match valid {
                    Valid::All => width,
                    Valid::Prefix(lengths) => lengths[row] as usize,
                    Valid::Mask(mask) => dispatch(Count(&mask[start..end])),
                };
                let valid_end = match valid {
                    Valid::Mask(_) => end,
                    _ => start + tokens,
                };
                Place {
                    start,
                    end,
                    valid_end,
                    tokens,
                }
            })
            .collect(),
        Rows::Ragged(lengths) => lengths
            .iter()
            .scan(0, |end, &length| {
                let (start, tokens) = (*end, length as usize);
                *end += tokens;
                Some(Place {
                    start,
                    end: *end,
                    valid_end: *end,
                    tokens,
                })
            })
            .collect(),
    }
}

/// The mask of a layout that has one.
pub(crate) fn mask_of<'a>(rows: &Rows<'a>) -> Option<&'a [u8]> {
    match *rows {
        Rows::Padded {
            valid: Valid::Mask(mask),
            ..
        } => Some(mask),
        _ => None,
    }
}

/// Number of bytes that are not 0.
struct Count<'a>(&'a [u8]);

impl Kernel for Count<'_> {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        let (chunks, rest) = self.0.as_chunks::<128>();
        let ones = |bytes: &[u8]| bytes.iter().map(|&byte| u8::from(byte != 0)).sum::<u8>(); // 128 at most
        chunks
            .iter()
            .map(|chunk| usize::from(ones(chunk)))
            .sum::<usize>()
            + usize::from(ones(rest))
    }
}

/// Consecutive rows that one thread works on.
pub(crate) struct Part<'a, T> {
    /// The first row's number.
    pub(crate) first: usize,
    /// The rows.
    pub(crate) places: &'a [Place],
    /// The rows' part of the output.
    pub(crate) out: &'a mut [T],
}

/// Rows cut into parts of [`PART_SLOTS`] slots or a little more, each with its own piece of the output.
pub(crate) struct Parts<'a, T> {
    next: usize,
    places: &'a [Place],
    out: &'a mut [T],
}

impl<'a, T> Parts<'a, T> {
    /// `out` has one element for every slot, or none at all.
    pub(crate) fn new(places: &'a [Place], out: &'a mut [T]) -> Self {
        Self {
            next: 0,
            places,
            out,
        }
    }
}

/// The number of rows of the first part of these rows.
fn part_of(places: &[Place]) -> usize {
    let start = places.first().map_or(0, |place| place.start);
    places
        .iter()
        .position(|place| place.end - start >= PART_SLOTS)
        .map_or(places.len(), |row| row + 1)
}

/// The number of parts.
pub(crate) fn count_parts(mut places: &[Place]) -> usize {
    let mut parts = 0;
    while !places.is_empty() {
        places = &places[part_of(places)..];
        parts += 1;
    }
    parts
}

impl<'a, T> Iterator for Parts<'a, T> {
    type Item = Part<'a, T>;

    fn next(&mut self) -> Option<Part<'a, T>> {
        let start = self.places.first()?.start;
        let (places, rest) = self.places.split_at(part_of(self.places));
        let slots = places.last().map_or(start, |place| place.end) - start;
        let out = std::mem::take(&mut self.out);
        let (out, behind) = out.split_at_mut(slots.min(out.len()));
        let first = self.next;
        self.next += places.len();
        (self.places, self.out) = (rest, behind);
        Some(Part { first, places, out })
    }
}

/// Arrays with one element per slot, cut to the same slots; an array that is not there is empty.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a, T, const N: usize> {
    pub(crate) arrays: [&'a [T]; N],
    pub(crate) mask: Option<&'a [u8]>,
}

/// The same as groups of eight.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'a, T, const N: usize> {
    arrays: [&'a [[T; F64_LANES]]; N],
    mask: Option<&'a [[u8; F64_LANES]]>,
    len: usize,
}

/// The last slots of a row, filled up to a group of eight.
pub(crate) struct Rest<T, const N: usize> {
    arrays: [[T; F64_LANES]; N],
    is_there: [bool; N],
    mask: [u8; F64_LANES],
    /// Number of slots that are there.
    pub(crate) len: usize,
}

impl<'a, T: Data, const N: usize> Columns<'a, T, N> {
    /// The slots `start..end` of every array that is there.
    #[inline(always)]
    pub(crate) fn cut(&self, start: usize, end: usize) -> Self {
        Self {
            arrays: self
                .arrays
                .map(|array| array.get(start..end).unwrap_or(&[])),
            mask: self.mask.map(|mask| &mask[start..end]),
        }
    }

    /// Whole groups of these `slots` slots, and the rest.
    #[inline(always)]
    pub(crate) fn groups(&self, slots: usize) -> (Groups<'a, T, N>, Rest<T, N>) {
        let whole = slots - slots % F64_LANES;
        let mut rest = Rest {
            arrays: [[T::default(); F64_LANES]; N],
            is_there: self.arrays.map(|array| array.len() == slots),
            mask: [0; F64_LANES],
            len: slots - whole,
        };
        for (to, from) in rest.arrays.iter_mut().zip(self.arrays) {
            let from = from.get(whole..slots).unwrap_or(&[]);
            to[..from.len()].copy_from_slice(from);
        }
        match self.mask {
            Some(mask) => rest.mask[..rest.len].copy_from_slice(&mask[whole..slots]),
            None => rest.mask[..rest.len].fill(1),
        }
        let groups = Groups {
            arrays: self.arrays.map(|array| array.as_chunks().0),
            mask: self.mask.map(|mask| mask.as_chunks().0),
            len: slots / F64_LANES,
        };
        (groups, rest)
    }
}

impl<T: Data, const N: usize> Rest<T, N> {
    /// One group, or none where the row had no rest.
    #[inline(always)]
    pub(crate) fn groups(&self) -> Groups<'_, T, N> {
        Groups {
            arrays: std::array::from_fn(|i| {
                if self.is_there[i] {
                    std::slice::from_ref(&self.arrays[i])
                } else {
                    &[]
                }
            }),
            mask: Some(std::slice::from_ref(&self.mask)),
            len: usize::from(self.len > 0),
        }
    }
}

impl<T: Data, const N: usize> Groups<'_, T, N> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether an array is there.
    #[inline(always)]
    pub(crate) fn has(&self, array: usize) -> bool {
        self.arrays[array].len() == self.len
    }

    /// Which slots of a group are tokens: bit i is slot i.
    #[inline(always)]
    pub(crate) fn bits(&self, group: usize) -> u8 {
        // One path for both: a constant written into the lowest byte of a register would wait for the last group's mask.
        bits_of(match self.mask {
            None => [0xff; F64_LANES],
            Some(mask) => mask[group],
        })
    }

    /// The lanes of an array that is there.
    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, s: S, array: usize, group: usize) -> S::F64 {
        T::load(s, &self.arrays[array][group])
    }
}

/// Bit i says whether byte i is not 0.
#[inline(always)]
fn bits_of(bytes: [u8; F64_LANES]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let word = u64::from_le_bytes(bytes);
    let top = (((word & LOW) + LOW) | word) & !LOW; // the top bit of every byte that is not 0
    ((top >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_is_not_0_is_a_bit() {
        for pattern in 0..=255u8 {
            for value in [1, 2, 127, 128, 255] {
                let bytes: [u8; 8] =
                    std::array::from_fn(|i| if pattern >> i & 1 == 1 { value } else { 0 });
                assert_eq!(bits_of(bytes), pattern);
            }
        }
    }

    #[test]
    fn every_token_is_counted() {
        for len in [0, 1, 127, 128, 129, 1000] {
            let mask: Vec<u8> = (0..len).map(|i| (i * 37 % 3) as u8 * 100).collect();
            let want = mask.iter().filter(|&&byte| byte != 0).count();
            assert_eq!(dispatch(Count(&mask)), want);
        }
    }

    #[test]
    fn parts_cover_every_row_once_and_in_order() {
        let lengths: Vec<i64> = (0..300).map(|i| i * i % 997).collect();
        let places = places(&Rows::Ragged(&lengths));
        let slots = lengths.iter().sum::<i64>() as usize;
        let mut out: Vec<u8> = vec![0; slots];
        let mut next = 0;
        for part in Parts::new(&places, &mut out) {
            assert_eq!(part.first, next);
            let end = part.places.last().expect("a row").end;
            assert_eq!(part.out.len(), end - places[next].start);
            part.out.iter_mut().for_each(|x| *x += 1);
            next += part.places.len();
        }
        assert_eq!(next, places.len());
        assert!(out.iter().all(|&x| x == 1));
        assert_eq!(count_parts(&places), Parts::new(&places, &mut out).count());
    }
}
