//! Which slots of a log-probability array are tokens, and to which sequence they belong.

use crate::error::{lengths_within, same_length};
use crate::isa::{Kernel, Simd, dispatch};
use crate::{Error, Result};

/// The valid slots of a padded array.
#[derive(Debug, Clone, Copy)]
pub enum Valid<'a> {
    /// Every slot is a token.
    All,
    /// One byte per slot, not 0 on tokens. Bytes and not `bool`: a foreign array of booleans may hold any byte.
    Mask(&'a [u8]),
    /// The first `lengths[row]` slots of a row are tokens.
    Prefix(&'a [i64]),
}

/// The layout of an array of tokens.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// `rows` sequences of `width` slots each, row after row.
    Padded {
        /// Number of sequences.
        rows: usize,
        /// Slots per sequence.
        width: usize,
        /// Which slots are tokens.
        valid: Valid<'a>,
    },
    /// Sequences of these lengths, one after the other without padding.
    Ragged(&'a [i64]),
}

/// The slots of one sequence. Tokens are in `start..tokens_end`; with a mask, only some of these are tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) start: usize,
    pub(crate) tokens_end: usize,
    pub(crate) end: usize,
}

/// A sequence and its number of tokens, the mask applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedRow {
    pub(crate) row: Row,
    pub(crate) tokens: usize,
}

/// An iterator over consecutive sequences.
#[derive(Debug, Clone)]
pub(crate) struct RowIter<'a> {
    widths: Widths<'a>,
    start: usize,
    /// Number of remaining sequences.
    left: usize,
}

#[derive(Debug, Clone, Copy)]
enum Widths<'a> {
    /// All of the same width, the last one cut off at `end`; every slot is a token or masked.
    Even { width: usize, end: usize },
    /// All of the same width, the first slots of each are tokens.
    Prefix { width: usize, lengths: &'a [i64] },
    /// Each row has its own width.
    Ragged(&'a [i64]),
}

impl Iterator for RowIter<'_> {
    type Item = Row;

    #[inline]
    fn next(&mut self) -> Option<Row> {
        self.left = self.left.checked_sub(1)?;
        let start = self.start;
        let (tokens_end, end) = match &mut self.widths {
            Widths::Even { width, end } => {
                let end = (start + *width).min(*end);
                (end, end)
            }
            Widths::Prefix { width, lengths } => {
                let (&length, rest) = lengths.split_first()?;
                *lengths = rest;
                (start + length as usize, start + *width)
            }
            Widths::Ragged(lengths) => {
                let (&length, rest) = lengths.split_first()?;
                *lengths = rest;
                let end = start + length as usize;
                (end, end)
            }
        };
        self.start = end;
        Some(Row {
            start,
            tokens_end,
            end,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a> RowIter<'a> {
    /// `slots` slots as rows of `width` and a shorter last one, for kernels in which tokens do not depend on sequences.
    pub(crate) fn cut(slots: usize, width: usize) -> Self {
        Self {
            widths: Widths::Even { width, end: slots },
            start: 0,
            left: slots.div_ceil(width),
        }
    }

    /// Number of remaining sequences.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// The number of the first slot.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        let start = self.start;
        self.clone().last().map_or(0, |row| row.end - start)
    }

    /// Chunks of consecutive sequences, each with at least `least` slots, except the last.
    pub(crate) fn chunks(mut self, least: usize) -> impl Iterator<Item = RowIter<'a>> {
        std::iter::from_fn(move || {
            let mut chunk = self.clone();
            let row = self.next()?;
            let mut end = row.end;
            while end - chunk.start < least {
                match self.next() {
                    Some(row) => end = row.end,
                    None => break,
                }
            }
            chunk.left -= self.left;
            Some(chunk)
        })
    }
}

impl<'a> Rows<'a> {
    /// Number of sequences.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Padded { rows, .. } => *rows,
            Self::Ragged(lengths) => lengths.len(),
        }
    }

    /// Checks that the layout describes exactly `slots` slots.
    ///
    /// # Errors
    /// A mask or lengths of another size; a length that is negative or beyond its row; ragged lengths whose sum is not
    /// `slots`.
    pub fn check(&self, slots: usize) -> Result<()> {
        match *self {
            Self::Padded { rows, width, valid } => {
                same_length(
                    "policy",
                    slots,
                    rows.saturating_mul(width),
                    "rows times width",
                )?;
                match valid {
                    Valid::All => Ok(()),
                    Valid::Mask(mask) => same_length("mask", mask.len(), slots, "`policy`"),
                    Valid::Prefix(lengths) => {
                        same_length("lengths", lengths.len(), rows, "the rows of `policy`")?;
                        lengths_within(lengths, width as i64, "the slots of a row")
                    }
                }
            }
            Self::Ragged(lengths) => {
                lengths_within(lengths, slots as i64, "the number of tokens")?;
                let found: i128 = lengths.iter().map(|&n| i128::from(n)).sum();
                if usize::try_from(found) == Ok(slots) {
                    Ok(())
                } else {
                    Err(Error::LengthSum {
                        found,
                        expected: slots,
                    })
                }
            }
        }
    }

    /// The mask of a layout that has one.
    pub(crate) fn mask(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Padded {
                valid: Valid::Mask(mask),
                ..
            } => Some(mask),
            _ => None,
        }
    }

    /// The sequences. The layout must have passed [`Rows::check`].
    pub(crate) fn sequences(&self) -> RowIter<'a> {
        let widths = match *self {
            Self::Padded {
                width,
                valid: Valid::Prefix(lengths),
                ..
            } => Widths::Prefix { width, lengths },
            Self::Padded { rows, width, .. } => Widths::Even {
                width,
                end: rows * width,
            },
            Self::Ragged(lengths) => Widths::Ragged(lengths),
        };
        RowIter {
            widths,
            start: 0,
            left: self.count(),
        }
    }

    /// The sequences with their numbers of tokens. The layout must have passed [`Rows::check`].
    pub(crate) fn counted(&self) -> Vec<CountedRow> {
        let mask = self.mask();
        let mut counted = Vec::with_capacity(self.count());
        for row in self.sequences() {
            let tokens = match mask {
                Some(mask) => dispatch(CountTokens(&mask[row.start..row.end])),
                None => row.tokens_end - row.start,
            };
            counted.push(CountedRow { row, tokens });
        }
        counted
    }
}

/// Number of bytes that are not 0.
struct CountTokens<'a>(&'a [u8]);

impl Kernel for CountTokens<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_every_row_once_and_in_order() {
        let lengths: Vec<i64> = (0..300).map(|i| i * i % 997).collect();
        for rows in [
            Rows::Ragged(&lengths),
            Rows::Padded {
                rows: 300,
                width: 997,
                valid: Valid::Prefix(&lengths),
            },
            Rows::Padded {
                rows: 300,
                width: 7,
                valid: Valid::All,
            },
        ] {
            let all: Vec<Row> = rows.sequences().collect();
            let chunks: Vec<RowIter<'_>> = rows.sequences().chunks(5000).collect();
            assert!(chunks.len() < all.len());
            assert!(
                chunks
                    .iter()
                    .rev()
                    .skip(1)
                    .all(|chunk| chunk.slots() >= 5000)
            );
            let again: Vec<Row> = chunks.iter().flat_map(Clone::clone).collect();
            assert_eq!(again, all);
            assert_eq!(chunks.iter().map(RowIter::left).sum::<usize>(), 300);
        }
        let ends: Vec<usize> = RowIter::cut(10, 4).map(|row| row.end).collect();
        assert_eq!(ends, [4, 8, 10]);
        assert_eq!(RowIter::cut(0, 4).left(), 0);
    }

    #[test]
    fn every_token_is_counted() {
        for len in [0, 1, 127, 128, 129, 1000] {
            let mask: Vec<u8> = (0..len).map(|i| (i * 37 % 3) as u8 * 100).collect();
            let want = mask.iter().filter(|&&byte| byte != 0).count();
            assert_eq!(dispatch(CountTokens(&mask)), want);
        }
    }
}
