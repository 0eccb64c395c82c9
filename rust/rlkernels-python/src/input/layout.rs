//! Which slots are tokens: all, those of a mask, a valid prefix of every row, or ragged sequences one after the other.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rlkernels::rows::{Rows, Valid};

use super::array::Array;
use super::element::Element;
use super::integers::integers;
use super::shape::{Shape, shown};
use super::span::{Reads, Span};

/// The layout of an array of tokens, with the arrays that describe it.
pub(crate) struct Layout<'py> {
    slots: Slots<'py>,
    rows: usize,
    width: usize,
    /// One dimension and no lengths: one sequence, whose reduction is a scalar.
    single: bool,
}

enum Slots<'py> {
    All,
    Mask(Array<'py, u8>),
    Prefix(Array<'py, i64>),
    Ragged(Array<'py, i64>),
    /// A mask without the rows that `row_mask` excludes.
    RowMask(Vec<u8>),
    /// Prefixes, empty in the rows that `row_mask` excludes.
    RowPrefix(Vec<i64>),
}

/// Rows without slots cost no memory, so an array may claim any number of them; every row costs time.
const MOST_ROWS: usize = (1 << 31) - 1;

impl<'py> Layout<'py> {
    /// The layout of `data`, (tokens,) or (rows, tokens), under at most one of `mask` and `lengths`.
    pub(crate) fn extract<T: Element>(
        data: &Array<'py, T>,
        mask: Option<&Bound<'py, PyAny>>,
        lengths: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let (rows, width, flat) = match **data.shape() {
            [width] => (1, width, true),
            [rows, width] => (rows, width, false),
            _ => {
                return Err(PyValueError::new_err(format!(
                    "`{}` has shape {}, must be (tokens,) or (rows, tokens)",
                    data.name(),
                    shown(data.shape())
                )));
            }
        };
        if rows > MOST_ROWS {
            return Err(PyValueError::new_err(format!(
                "`{}` has shape {}, must have fewer than 2**31 rows",
                data.name(),
                shown(data.shape())
            )));
        }
        let slots = match (mask, lengths) {
            (None, None) => Slots::All,
            (Some(mask), None) => Slots::Mask(Array::mask("mask", mask, data)?),
            (None, Some(lengths)) => {
                let lengths = integers("lengths", lengths)?.one_dimensional()?;
                if flat {
                    Slots::Ragged(lengths)
                } else {
                    Slots::Prefix(lengths)
                }
            }
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err(
                    "both `mask` and `lengths` are given, must be at most one of them",
                ));
            }
        };
        let single = flat && !matches!(slots, Slots::Ragged(_));
        Ok(Self {
            slots,
            rows,
            width,
            single,
        })
    }

    /// The layout without tokens in the rows where `row_mask` is false.
    pub(crate) fn without_rows(self, row_mask: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        let Some(row_mask) = row_mask else {
            return Ok(self);
        };
        let kept = Array::truths("row_mask", row_mask)?;
        let kept = kept.shaped(&[self.rows().count()], "the rows of `policy`")?;
        let rows = kept.as_slice().iter().map(|&kept| kept != 0);
        let slots = match &self.slots {
            Slots::Mask(mask) => {
                let mut mask = mask.as_slice().to_vec();
                let width = self.width.max(1);
                for (row, kept) in mask.chunks_exact_mut(width).zip(rows) {
                    if !kept {
                        row.fill(0);
                    }
                }
                Slots::RowMask(mask)
            }
            Slots::Prefix(lengths) => {
                let mut lengths = lengths.as_slice().to_vec();
                for (length, kept) in lengths.iter_mut().zip(rows) {
                    if !kept {
                        *length = 0;
                    }
                }
                Slots::RowPrefix(lengths)
            }
            Slots::Ragged(_) => {
                return Err(PyValueError::new_err(
                    "`row_mask` is given with `lengths` of flat rows, must be None there; pad the rows to (rows, tokens)",
                ));
            }
            _ => {
                let whole = self.width as i64;
                Slots::RowPrefix(rows.map(|kept| if kept { whole } else { 0 }).collect())
            }
        };
        Ok(Self { slots, ..self })
    }

    /// The core's view of it.
    pub(crate) fn rows(&self) -> Rows<'_> {
        let valid = match &self.slots {
            Slots::All => Valid::All,
            Slots::Mask(mask) => Valid::Mask(mask.as_slice()),
            Slots::Prefix(lengths) => Valid::Prefix(lengths.as_slice()),
            Slots::RowMask(mask) => Valid::Mask(mask),
            Slots::RowPrefix(lengths) => Valid::Prefix(lengths),
            Slots::Ragged(lengths) => return Rows::Ragged(lengths.as_slice()),
        };
        Rows::Padded {
            rows: self.rows,
            width: self.width,
            valid,
        }
    }

    /// The shape of a result with one value per sequence: `()` for one sequence, which becomes a scalar.
    pub(crate) fn sequences(&self) -> Shape {
        if self.single {
            Shape::SCALAR
        } else {
            Shape::line(self.rows().count())
        }
    }
}

impl Reads for Layout<'_> {
    fn span(&self) -> Span {
        match &self.slots {
            Slots::All | Slots::RowMask(_) | Slots::RowPrefix(_) => Span::EMPTY,
            Slots::Mask(mask) => mask.span(),
            Slots::Prefix(lengths) | Slots::Ragged(lengths) => lengths.span(),
        }
    }
}
