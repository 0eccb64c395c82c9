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

/// One sequence: its slots, and which of them are tokens.
pub(crate) struct Row<'a> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    tokens: Tokens<'a>,
}

enum Tokens<'a> {
    First(usize),
    Mask(&'a [u8]),
}

impl Row<'_> {
    /// Calls `visit(slot, is_token)` for every slot of the row, in order.
    #[inline]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize, bool)) {
        match self.tokens {
            Tokens::First(count) => {
                (self.start..self.start + count).for_each(|slot| visit(slot, true));
                (self.start + count..self.end).for_each(|slot| visit(slot, false));
            }
            Tokens::Mask(mask) => {
                for (slot, &byte) in (self.start..self.end).zip(mask) {
                    visit(slot, byte != 0);
                }
            }
        }
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

    /// Calls `visit(row number, row)` for every sequence. The layout must have passed [`Rows::check`].
    #[inline]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize, &Row<'a>)) {
        match *self {
            Self::Padded { rows, width, valid } => {
                for row in 0..rows {
                    let start = row * width;
                    let end = start + width;
                    let tokens = match valid {
                        Valid::All => Tokens::First(width),
                        Valid::Mask(mask) => Tokens::Mask(&mask[start..end]),
                        Valid::Prefix(lengths) => Tokens::First(lengths[row] as usize),
                    };
                    visit(row, &Row { start, end, tokens });
                }
            }
            Self::Ragged(lengths) => {
                let mut start = 0;
                for (row, &length) in lengths.iter().enumerate() {
                    let length = length as usize;
                    let tokens = Tokens::First(length);
                    let end = start + length;
                    visit(row, &Row { start, end, tokens });
                    start = end;
                }
            }
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
