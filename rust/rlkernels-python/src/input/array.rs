//! Arrays as slices of one element type.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::element::Element;
use super::floats::{FLOATS, Floats};
use super::message::{Wanted, shown, wrong};
use super::raw::{Facts, Shape};
use super::source::Source;
use super::span::{Reads, Span};

const TRUTHS: Wanted = Wanted {
    types: "bool",
    remedy: "bool",
};

/// An array whose elements are one slice: in place or, where that cannot be, a copy.
pub(crate) struct Array<'py, T> {
    name: &'static str,
    data: NonNull<T>,
    len: usize,
    shape: Shape,
    held: Bound<'py, PyAny>, // keeps the elements alive
    elements: PhantomData<T>,
}

impl<T: Element> Reads for Array<'_, T> {
    fn span(&self) -> Span {
        Span::of(self.data, self.len)
    }
}

impl<'py, T: Element> Array<'py, T> {
    /// The argument's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn py(&self) -> Python<'py> {
        self.held.py()
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The elements in C order.
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `new` saw `len` aligned elements of this type at `data`, all of them initialised by whoever made the
        // array; `held` keeps them alive. Nobody writes to them while the GIL is held; while it is not, that is the
        // caller's business, as with NumPy's own functions (the type stub says so).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// Another argument of the same type and shape.
    pub(crate) fn like(&self, name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        self.of_type(name, value)?.shaped(&self.shape, self.name)
    }

    /// Another argument of the same type and shape, or none.
    pub(crate) fn maybe_like(
        &self,
        name: &'static str,
        value: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Self>> {
        value.map(|value| self.like(name, value)).transpose()
    }

    /// Another argument of the same type and any shape.
    pub(crate) fn of_type(&self, name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let source = Source::of(name, value, &FLOATS)?;
        if source.facts.kind == T::KIND && !source.bfloat {
            return source.contiguous(name);
        }
        let other = Floats::from_source(name, value, source)?; // no such float at all: says so
        Err(PyTypeError::new_err(format!(
            "`{}` is {} and `{name}` is {}, must be the same type; convert one of them with astype",
            self.name,
            T::NAME,
            other.dtype()
        )))
    }

    /// `ValueError` unless it has this shape, that of `like`: an argument's name, or words with one in backticks.
    pub(crate) fn shaped(self, shape: &[usize], like: &str) -> PyResult<Self> {
        if *self.shape == *shape {
            return Ok(self);
        }
        let quote = if like.contains('`') { "" } else { "`" };
        Err(PyValueError::new_err(format!(
            "`{}` has shape {}, must be {} like {quote}{like}{quote}",
            self.name,
            shown(&self.shape),
            shown(shape)
        )))
    }

    /// `ValueError` unless it has one dimension.
    pub(crate) fn one_dimensional(self) -> PyResult<Self> {
        if self.shape.len() == 1 {
            return Ok(self);
        }
        Err(PyValueError::new_err(format!(
            "`{}` has shape {}, must have one dimension",
            self.name,
            shown(&self.shape)
        )))
    }

    /// Elements of this type where `held` is an array of them that can be read in place.
    pub(super) fn new(name: &'static str, held: Bound<'py, PyAny>, facts: &Facts) -> Self {
        let data = NonNull::new(facts.data.cast::<T>());
        Self {
            name,
            data: data
                .filter(|_| facts.len > 0)
                .unwrap_or(NonNull::dangling()),
            len: facts.len,
            shape: facts.shape,
            held,
            elements: PhantomData,
        }
    }
}

impl<'py> Array<'py, u8> {
    /// Booleans of the same shape as `data`, as bytes that are not 0 where it is true.
    pub(crate) fn mask<T: Element>(
        name: &'static str,
        value: &Bound<'py, PyAny>,
        data: &Array<'py, T>,
    ) -> PyResult<Self> {
        let source = Source::of(name, value, &TRUTHS)?;
        if source.facts.kind != u8::KIND {
            return Err(wrong(name, value, &TRUTHS));
        }
        source
            .contiguous::<u8>(name)?
            .shaped(data.shape(), data.name())
    }
}
