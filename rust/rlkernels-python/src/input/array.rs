//! Arrays as slices of one element type.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;

use super::element::{Element, is_integer};
use super::message::{Elements, FLOATS, NUMBERS, Wanted, wrong};
use super::output::Output;
use super::raw::{self, Facts, Untyped};
use super::shape::{Shape, shown};
use super::source::{Half, Source};
use super::span::{Reads, Span};

const TRUTHS: Wanted = Wanted {
    types: "bool, or of the numbers 0 and 1",
    remedy: "bool",
    elements: Elements::Truths,
    takes_integers: false,
    takes_halves: false,
};

/// An array whose elements are one slice: in place or, where that cannot be, a copy.
pub(crate) struct Array<'py, T> {
    name: &'static str,
    data: NonNull<T>,
    len: usize,
    shape: Shape,
    held: Untyped<'py>, // keeps the elements alive
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
        Self::typed(name, value, &FLOATS)?.map_err(|found| self.differs(name, found))
    }

    /// As [`Array::of_type`]; integers are converted.
    pub(crate) fn numbers(&self, name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::typed(name, value, &NUMBERS)?.map_err(|found| self.differs(name, found))
    }

    fn differs(&self, name: &str, found: &str) -> PyErr {
        PyTypeError::new_err(format!(
            "`{}` is {} and `{name}` is {found}, must be the same type; convert one of them with astype",
            self.name,
            T::NAME,
        ))
    }

    /// Floats of this type and any shape, or the name of the other float type that was found.
    pub(crate) fn floats(
        name: &'static str,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Result<Self, &'static str>> {
        Self::typed(name, value, &FLOATS)
    }

    fn typed(
        name: &'static str,
        value: &Bound<'py, PyAny>,
        wanted: &Wanted,
    ) -> PyResult<Result<Self, &'static str>> {
        let source = Source::of(name, value, wanted)?;
        match source.facts.kind {
            _ if source.untyped => Self::converted(name, source).map(Ok),
            _ if wanted.takes_halves && source.half().is_some() => match source.half() {
                Some(half) if T::KIND != f32::KIND => Ok(Err(half.name())),
                _ => Self::widened(name, &source).map(Ok),
            },
            kind if kind == T::KIND && !source.bfloat => Self::read(name, source).map(Ok),
            f32::KIND => Ok(Err(f32::NAME)),
            f64::KIND => Ok(Err(f64::NAME)),
            _ => Err(wrong(name, value, wanted)),
        }
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
            "`{0}` has shape {1}, must have one dimension{2}",
            self.name,
            shown(&self.shape),
            if self.shape.is_empty() {
                String::new()
            } else {
                format!("; pass {}.reshape(-1)", self.name)
            }
        )))
    }

    /// The elements of a source, which must be of `T`'s type or, for half floats, of its size.
    #[inline]
    pub(super) fn read(name: &'static str, source: Source<'py>) -> PyResult<Self> {
        if source.facts.in_place {
            return Ok(Self::new(name, source.array, &source.facts));
        }
        let kind = source.facts.kind;
        Self::copied(name, &source, kind)
    }

    /// The elements of a source converted to `T`; the caller has checked that nothing is lost.
    pub(super) fn converted(name: &'static str, source: Source<'py>) -> PyResult<Self> {
        if source.facts.kind == T::KIND {
            return Self::read(name, source);
        }
        Self::copied(name, &source, T::KIND)
    }

    /// The elements of a half type as float32, exactly; `T` is that type.
    #[cold]
    pub(super) fn widened(name: &'static str, source: &Source<'py>) -> PyResult<Self> {
        if source.half() == Some(Half::Float16) {
            return Self::copied(name, source, f32::KIND);
        }
        let bits = Array::<u16>::copied(name, source, source.facts.kind)?;
        let mut wide = Output::<f32>::new(bits.py(), bits.shape())?;
        for (to, &bits) in wide.as_mut_slice().iter_mut().zip(bits.as_slice()) {
            *to = f32::from_bits(u32::from(bits) << 16);
        }
        Self::of(name, wide.into_array())
    }

    #[cold]
    fn copied(name: &'static str, source: &Source<'py>, kind: c_int) -> PyResult<Self> {
        let copy = raw::copied(name, &source.array, &source.facts, kind)?;
        Self::of(name, copy)
    }

    /// Elements of this type where `held` is an array of them that can be read in place.
    fn of(name: &'static str, held: Untyped<'py>) -> PyResult<Self> {
        let facts = raw::facts(name, &held)?;
        Ok(Self::new(name, held, &facts))
    }

    /// As [`Array::of`], with the facts of the array.
    fn new(name: &'static str, held: Untyped<'py>, facts: &Facts) -> Self {
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
        Self::truths(name, value)?.shaped(data.shape(), data.name())
    }

    /// Booleans of any shape, or the numbers 0 and 1, as bytes that are not 0 where it is true.
    pub(crate) fn truths(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let source = Source::of(name, value, &TRUTHS)?;
        match source.facts.kind {
            u8::KIND => Self::read(name, source),
            kind if !source.bfloat
                && (is_integer(kind) || [u16::KIND, f32::KIND, f64::KIND].contains(&kind)) =>
            {
                Self::zeros_and_ones(name, &source)
            }
            _ => Err(wrong(name, value, &TRUTHS)),
        }
    }

    #[cold]
    fn zeros_and_ones(name: &'static str, source: &Source<'py>) -> PyResult<Self> {
        let found = &source.array;
        let truths = raw::copied(name, found, &source.facts, u8::KIND)?;
        let other = found.rich_compare(&truths, CompareOp::Ne)?;
        if other.call_method0("any")?.is_truthy()? {
            let other = found.get_item(other)?.call_method0("min")?.str()?;
            return Err(PyValueError::new_err(format!(
                "`{name}` holds {other}, must hold 0 and 1 only, or be of bool"
            )));
        }
        Self::of(name, truths)
    }
}
