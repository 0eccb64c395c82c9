//! Which slots of a log-probability array are tokens, and to which sequence they belong.

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

/// Where one sequence lies. Its tokens stand before `tokens_end`; a mask of the layout may take some of them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) start: usize,
    pub(crate) tokens_end: usize,
    pub(crate) end: usize,
}

/// Sequences one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowIter<'a> {
    widths: Widths<'a>,
    start: usize,
    /// Sequences that are left.
    left: usize,
}

#[derive(Debug, Clone, Copy)]
enum Widths<'a> {
    /// All of the same width, the last one cut off at `end`.
    Even { width: usize, end: usize },
    /// All of the same width, the first slots valid.
    Prefix { width: usize, lengths: &'a [i64] },
    /// Each of its own.
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
}

impl<'a> RowIter<'a> {
    /// `slots` slots as rows of `width` and a shorter last one, for what needs no sequences.
    pub(crate) fn cut(slots: usize, width: usize) -> Self {
        Self {
            widths: Widths::Even { width, end: slots },
            start: 0,
            left: slots.div_ceil(width),
        }
    }

    /// Number of sequences.
    pub(crate) fn count(&self) -> usize {
        self.left
    }

    /// The number of the first slot.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Number of slots.
    pub(crate) fn slots(self) -> usize {
        let start = self.start;
        self.last().map_or(0, |row| row.end - start)
    }

    /// Consecutive sequences with at least `least` slots each, the last part aside.
    pub(crate) fn parts(mut self, least: usize) -> impl Iterator<Item = RowIter<'a>> {
        std::iter::from_fn(move || {
            let mut part = self;
            let row = self.next()?;
            let mut end = row.end;
            while end - part.start < least {
                match self.next() {
                    Some(row) => end = row.end,
                    None => break,
                }
            }
            part.left -= self.left;
            Some(part)
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
                        if lengths.len() != rows {
                            return Err(Error::LengthMismatch {
                                argument: "lengths",
                                found: lengths.len(),
                                expected: rows,
                                like: "the rows of `policy`",
                            });
                        }
                        within(lengths, width, "the slots of a row")
                    }
                }
            }
            Self::Ragged(lengths) => {
                within(lengths, slots, "the number of tokens")?;
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
    pub(crate) fn iter(&self) -> RowIter<'a> {
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
}

pub(crate) fn same_length(
    argument: &'static str,
    found: usize,
    expected: usize,
    like: &'static str,
) -> Result<()> {
    if found == expected {
        Ok(())
    } else {
        Err(Error::LengthMismatch {
            argument,
            found,
            expected,
            like,
        })
    }
}

fn within(lengths: &[i64], most: usize, limit: &'static str) -> Result<()> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    match lengths.iter().position(|&n| n < 0 || n > most) {
        None => Ok(()),
        Some(index) => Err(Error::Length {
            index,
            found: lengths[index],
            most,
            limit,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_every_row_once_and_in_order() {
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
            let all: Vec<Row> = rows.iter().collect();
            let parts: Vec<RowIter<'_>> = rows.iter().parts(5000).collect();
            assert!(parts.len() < all.len());
            assert!(parts.iter().rev().skip(1).all(|part| part.slots() >= 5000));
            let again: Vec<Row> = parts.iter().flat_map(|part| part.into_iter()).collect();
            assert_eq!(again, all);
            assert_eq!(parts.iter().map(RowIter::count).sum::<usize>(), 300);
        }
        let ends: Vec<usize> = RowIter::cut(10, 4).map(|row| row.end).collect();
        assert_eq!(ends, [4, 8, 10]);
        assert_eq!(RowIter::cut(0, 4).count(), 0);
    }
}
