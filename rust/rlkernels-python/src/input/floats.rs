//! Arrays of floats: of the kernels' two types, and of logits with their half types.

use pyo3::prelude::*;

use super::array::Array;
use super::element::Element;
use super::message::{FLOATS, NUMBERS, Wanted, wrong};
use super::source::{Half, Source};

const LOGITS: Wanted = Wanted {
    types: "float16, bfloat16, float32 or float64",
    remedy: "numpy.float32",
    takes_halves: false, // a kernel of its own reads them
    ..FLOATS
};

/// An array of float32 or float64.
pub(crate) enum Floats<'py> {
    F32(Array<'py, f32>),
    F64(Array<'py, f64>),
}

impl<'py> Floats<'py> {
    /// A float32 or float64 array, or a `TypeError` with the remedy.
    pub(crate) fn extract(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of(name, value, &FLOATS)
    }

    /// As [`Floats::extract`]; integers become float64.
    pub(crate) fn numbers(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of(name, value, &NUMBERS)
    }

    fn of(name: &'static str, value: &Bound<'py, PyAny>, wanted: &Wanted) -> PyResult<Self> {
        let source = Source::of(name, value, wanted)?;
        match source.facts.kind {
            _ if source.untyped => Array::converted(name, source).map(Self::F64),
            _ if wanted.takes_halves && source.half().is_some() => {
                Array::widened(name, &source).map(Self::F32)
            }
            f32::KIND => Array::read(name, source).map(Self::F32),
            f64::KIND => Array::read(name, source).map(Self::F64),
            _ => Err(wrong(name, value, wanted)),
        }
    }
}

/// An array of float32, float64, or the bits of float16 or bfloat16.
pub(crate) enum Logits<'py> {
    F16(Array<'py, u16>),
    BF16(Array<'py, u16>),
    F32(Array<'py, f32>),
    F64(Array<'py, f64>),
}

impl<'py> Logits<'py> {
    /// A float array of any width up to float64, or a `TypeError` with the remedy.
    pub(crate) fn extract(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let source = Source::of(name, value, &LOGITS)?;
        if source.half() == Some(Half::Bfloat16) {
            return Array::read(name, source).map(Self::BF16);
        }
        match source.facts.kind {
            u16::KIND => Array::read(name, source).map(Self::F16),
            f32::KIND => Array::read(name, source).map(Self::F32),
            f64::KIND => Array::read(name, source).map(Self::F64),
            _ => Err(wrong(name, value, &LOGITS)),
        }
    }
}
