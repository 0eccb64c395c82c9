//! Arrays of integers.

use std::ffi::c_int;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::array::Array;
use super::element::{Element, LAST_INTEGER, is_integer};
use super::message::{Elements, Wanted, wrong};
use super::raw::check_copy;
use super::source::Source;

const INTEGERS: Wanted = Wanted {
    types: "integers",
    remedy: "numpy.int64",
    elements: Elements::Integers,
    takes_integers: false,
    takes_halves: false,
};

/// Integers of any width and shape as int64, or a `TypeError` with the remedy.
pub(crate) fn integers<'py>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Array<'py, i64>> {
    let source = Source::of(name, value, &INTEGERS)?;
    let kind = whole_kind(name, value, &source)?;
    if kind == Whole::Unsigned64 && source.facts.len > 0 {
        check_copy(name, &source.facts)?;
        let greatest: u64 = source.array.call_method0("max")?.extract()?;
        if i64::try_from(greatest).is_err() {
            return Err(PyValueError::new_err(format!(
                "`{name}` holds {greatest}, must be below 2**63"
            )));
        }
    }
    Array::converted(name, source)
}

/// Integers of any width and shape as unsigned ones of `T`'s width; `ValueError` where one does not fit.
pub(crate) fn unsigned<'py, T: Element>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Array<'py, T>> {
    let source = Source::of(name, value, &INTEGERS)?;
    whole_kind(name, value, &source)?;
    if source.facts.kind != T::KIND && source.facts.len > 0 {
        check_copy(name, &source.facts)?;
        let bits = 8 * size_of::<T>() as u32;
        let most = 1i128 << bits;
        for end in ["min", "max"] {
            let found: i128 = source
                .array
                .call_method0(end)?
                .call_method0("item")?
                .extract()?;
            if !(0..most).contains(&found) {
                return Err(PyValueError::new_err(format!(
                    "`{name}` holds {found}, must be at least 0 and below 2**{bits}"
                )));
            }
        }
    }
    Array::converted(name, source)
}

#[derive(PartialEq, Eq)]
enum Whole {
    Fits,
    Unsigned64,
}

fn whole_kind(name: &str, value: &Bound<'_, PyAny>, source: &Source<'_>) -> PyResult<Whole> {
    const UNSIGNED: [c_int; 2] = [u64::KIND, LAST_INTEGER];
    match source.facts.kind {
        kind if UNSIGNED.contains(&kind) => Ok(Whole::Unsigned64),
        kind if is_integer(kind) && !source.bfloat => Ok(Whole::Fits),
        _ => Err(wrong(name, value, &INTEGERS)),
    }
}
