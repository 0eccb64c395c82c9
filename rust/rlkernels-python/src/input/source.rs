//! What an argument is before its element type is settled.

use pyo3::prelude::*;

use super::dlpack;
use super::message::{Wanted, wrong};
use super::raw::{self, Facts};

/// A NumPy array, the argument itself or a view of another library's memory.
pub(super) struct Source<'py> {
    pub(super) array: Bound<'py, PyAny>,
    pub(super) facts: Facts,
    /// The elements are the bits of bfloat16, whatever NumPy calls them.
    pub(super) bfloat: bool,
}

impl<'py> Source<'py> {
    #[inline]
    pub(super) fn of(name: &str, value: &Bound<'py, PyAny>, wanted: &Wanted) -> PyResult<Self> {
        if !raw::is_plain(value) {
            return Self::unusual(name, value, wanted);
        }
        // SAFETY: a plain array.
        let facts = unsafe { raw::facts(name, value) }?;
        Ok(Self {
            array: value.clone(),
            facts,
            bfloat: false,
        })
    }

    #[cold]
    fn unusual(name: &str, value: &Bound<'py, PyAny>, wanted: &Wanted) -> PyResult<Self> {
        let (array, bfloat) = if raw::is_array(value) {
            // reading past the mask of a masked array would be a silent mistake
            if value.hasattr("mask").unwrap_or(true) {
                return Err(wrong(name, value, wanted));
            }
            (value.clone(), false)
        } else {
            dlpack::viewed(name, value, wanted)?
        };
        // SAFETY: an array of a subclass, or a view that was made as an array.
        let facts = unsafe { raw::facts(name, &array) }?;
        Ok(Self {
            array,
            facts,
            bfloat,
        })
    }
}
