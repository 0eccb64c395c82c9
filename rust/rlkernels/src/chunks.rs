//! Rows cut into chunks, the unit of work of a thread, and slots cut into groups of eight, the lanes of `f64`.

use crate::data::Data;
use crate::isa::{F32_LANES, F64_LANES, Simd};
use crate::rows::{CountedRow, Row};

/// The fewest slots of a chunk, except the last. Fixed, so the number of threads changes no bit.
const CHUNK_SLOTS: usize = 8192;

/// Consecutive rows that one thread works on.
pub(crate) struct Chunk<'a, T> {
    /// The index of the first row.
    pub(crate) first: usize,
    pub(crate) rows: &'a [CountedRow],
    /// The rows' piece of the output.
    pub(crate) out: &'a mut [T],
}

/// Cuts rows into chunks of [`CHUNK_SLOTS`] slots or a little more, each with its own piece of the output.
pub(crate) struct Chunks<'a, T> {
    next: usize,
    rows: &'a [CountedRow],
    out: &'a mut [T],
}

impl<'a, T> Chunks<'a, T> {
    /// `out` has one element for every slot, or none at all.
    pub(crate) fn new(rows: &'a [CountedRow], out: &'a mut [T]) -> Self {
        Self { next: 0, rows, out }
    }
}

/// The number of rows of the first chunk of these rows.
fn first_chunk(rows: &[CountedRow]) -> usize {
    let start = rows.first().map_or(0, |first| first.row.start);
    rows.iter()
        .position(|last| last.row.end - start >= CHUNK_SLOTS)
        .map_or(rows.len(), |row| row + 1)
}

/// The number of chunks of these rows.
pub(crate) fn count_chunks(mut rows: &[CountedRow]) -> usize {
    let mut chunks = 0;
    while !rows.is_empty() {
        rows = &rows[first_chunk(rows)..];
        chunks += 1;
    }
    chunks
}

impl<'a, T> Iterator for Chunks<'a, T> {
    type Item = Chunk<'a, T>;

    fn next(&mut self) -> Option<Chunk<'a, T>> {
        let start = self.rows.first()?.row.start;
        let (rows, rest) = self.rows.split_at(first_chunk(self.rows));
        let slots = rows.last().map_or(start, |last| last.row.end) - start;
        let out = std::mem::take(&mut self.out);
        let (out, behind) = out.split_at_mut(slots.min(out.len()));
        let first = self.next;
        self.next += rows.len();
        (self.rows, self.out) = (rest, behind);
        Some(Chunk { first, rows, out })
    }
}

/// Arrays with one element per slot; one that is not given is empty.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a, T, const N: usize> {
    pub(crate) arrays: [&'a [T]; N],
    pub(crate) mask: Option<&'a [u8]>,
}

/// The slots of a row as whole groups of eight.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'a, T, const N: usize> {
    arrays: [&'a [[T; F64_LANES]]; N],
    mask: Option<&'a [[u8; F64_LANES]]>,
    len: usize,
}

/// The last slots of a row, padded to a group of eight.
pub(crate) struct Rest<T, const N: usize> {
    arrays: [[T; F64_LANES]; N],
    is_given: [bool; N],
    mask: [u8; F64_LANES],
    /// Number of slots before the padding.
    len: usize,
}

impl<'a, T: Data, const N: usize> Columns<'a, T, N> {
    /// The slots of a row that may be tokens, as whole groups and the rest.
    #[inline(always)]
    pub(crate) fn groups(&self, row: Row) -> (Groups<'a, T, N>, Rest<T, N>) {
        let range = row.start..row.tokens_end;
        let slots = range.len();
        let arrays = self
            .arrays
            .map(|array| array.get(range.clone()).unwrap_or(&[]));
        let mask = self.mask.map(|mask| &mask[range]);
        let whole = slots - slots % F64_LANES;
        let mut rest = Rest {
            arrays: [[T::default(); F64_LANES]; N],
            is_given: arrays.map(|array| array.len() == slots),
            mask: [0; F64_LANES],
            len: slots - whole,
        };
        for (to, from) in rest.arrays.iter_mut().zip(arrays) {
            let from = from.get(whole..slots).unwrap_or(&[]);
            to[..from.len()].copy_from_slice(from);
        }
        match mask {
            Some(mask) => rest.mask[..rest.len].copy_from_slice(&mask[whole..slots]),
            None => rest.mask[..rest.len].fill(1),
        }
        let groups = Groups {
            arrays: arrays.map(|array| array.as_chunks().0),
            mask: mask.map(|mask| mask.as_chunks().0),
            len: slots / F64_LANES,
        };
        (groups, rest)
    }
}

impl<T: Data, const N: usize> Rest<T, N> {
    /// One group; none if the row has no rest.
    #[inline(always)]
    pub(crate) fn groups(&self) -> Groups<'_, T, N> {
        Groups {
            arrays: std::array::from_fn(|i| {
                if self.is_given[i] {
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

    /// Whether an array is given.
    #[inline(always)]
    pub(crate) fn has(&self, array: usize) -> bool {
        self.arrays[array].len() == self.len
    }

    /// Which slots of a group are tokens: bit i is slot i.
    #[inline(always)]
    pub(crate) fn bits(&self, group: usize) -> u8 {
        // One path for both: writing a constant into the lowest byte of a register would wait for the mask before it.
        bits_of(match self.mask {
            None => [0xff; F64_LANES],
            Some(mask) => mask[group],
        })
    }

    /// The lanes of an array that is given.
    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, s: S, array: usize, group: usize) -> S::F64 {
        T::load(s, &self.arrays[array][group])
    }
}

/// `values` padded to `N` elements; a copy in pieces only where some are missing.
#[inline(always)]
pub(crate) fn padded<T: Copy, const N: usize>(values: &[T], with: T) -> [T; N] {
    if let Ok(&whole) = <&[T; N]>::try_from(values) {
        return whole;
    }
    let mut all = [with; N];
    for (to, &from) in all.iter_mut().zip(values) {
        *to = from;
    }
    all
}

/// Bit i says whether byte i is not 0.
#[inline(always)]
pub(crate) fn bits_of(bytes: [u8; F64_LANES]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let word = u64::from_le_bytes(bytes);
    let top = (((word & LOW) + LOW) | word) & !LOW; // the top bit of every byte that is not 0
    ((top >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// As [`bits_of`], for sixteen bytes.
#[inline(always)]
pub(crate) fn bits_of_16(bytes: &[u8; F32_LANES]) -> u16 {
    let (halves, _) = bytes.as_chunks::<F64_LANES>();
    u16::from(bits_of(halves[0])) | u16::from(bits_of(halves[1])) << F64_LANES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

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
    fn chunks_cover_every_row_once_and_in_order() {
        let lengths: Vec<i64> = (0..300).map(|i| i * i % 997).collect();
        let rows = Rows::Ragged(&lengths).counted();
        let slots = lengths.iter().sum::<i64>() as usize;
        let mut out: Vec<u8> = vec![0; slots];
        let mut next = 0;
        for chunk in Chunks::new(&rows, &mut out) {
            assert_eq!(chunk.first, next);
            let end = chunk.rows.last().expect("a row").row.end;
            assert_eq!(chunk.out.len(), end - rows[next].row.start);
            chunk.out.iter_mut().for_each(|x| *x += 1);
            next += chunk.rows.len();
        }
        assert_eq!(next, rows.len());
        assert!(out.iter().all(|&x| x == 1));
        assert_eq!(count_chunks(&rows), Chunks::new(&rows, &mut out).count());
    }
}
