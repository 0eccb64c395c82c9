//! What an argument is before its element type is settled.

use std::ffi::c_int;

use pyo3::prelude::*;

use super::array::Array;
use super::dlpack;
use super::element::Element;
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

    /// The elements, which must be of `T`'s type or, for half floats, of its size.
    #[inline]
    pub(super) fn contiguous<T: Element>(self, name: &'static str) -> PyResult<Array<'py, T>> {
        if self.facts.in_place() {
            return Ok(Array::new(name, self.array, &self.facts));
        }
        self.copied(name, self.facts.kind)
    }

    /// The elements converted to `T`; the caller has seen that nothing is lost.
    pub(super) fn converted<T: Element>(self, name: &'static str) -> PyResult<Array<'py, T>> {
        if self.facts.kind == T::KIND {
            return self.contiguous(name);
        }
        self.copied(name, T::KIND)
    }

    #[cold]
    fn copied<T: Element>(&self, name: &'static str, kind: c_int) -> PyResult<Array<'py, T>> {
        let copy = raw::copied(name, &self.array, &self.facts, kind)?;
        // SAFETY: made as an array.
        let facts = unsafe { raw::facts(name, &copy) }?;
        Ok(Array::new(name, copy, &facts))
    }
}
