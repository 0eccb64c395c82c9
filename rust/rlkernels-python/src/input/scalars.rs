//! Arguments that are one number or one word: `arguments! { whole ddof, number eps, text scale }` makes an extractor of
//! each name, for `#[pyo3(from_py_with = ddof)] ddof: i64`, whose errors name the argument.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyBool, PyString, PyStringMethods};

use super::message::described;

/// Extractors named as their arguments, of the kinds `whole` (i64), `size` (usize), `number` (f64), `truth` (bool), `text` (&str), and `maybe_whole` and
/// `maybe_number`, which are `None` for Python's `None`.
macro_rules! arguments {
    (@type whole) => { i64 };
    (@type size) => { usize };
    (@type number) => { f64 };
    (@type truth) => { bool };
    (@type text) => { &'a str };
    (@type maybe_text) => { Option<&'a str> };
    (@type maybe_whole) => { Option<i64> };
    (@type maybe_number) => { Option<f64> };
    ($($kind:ident $name:ident),* $(,)?) => {
        $(
            #[allow(clippy::needless_lifetimes)] // only text borrows
            fn $name<'a>(
                value: &'a pyo3::Bound<'_, pyo3::PyAny>,
            ) -> pyo3::PyResult<$crate::input::arguments!(@type $kind)> {
                $crate::input::scalars::$kind(stringify!($name), value)
            }
        )*
    };
}
pub(crate) use arguments;

/// A whole number; one beyond 64 bits is a wrong value like any other, not an overflow, and `True` is no 1.
pub(crate) fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, value, "an integer"));
    }
    value
        .extract()
        .map_err(|error| refused(name, value, &error, "an integer", "fit into 64 bits"))
}

/// `True` or `False`, of Python or NumPy.
pub(crate) fn truth(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value
        .extract()
        .map_err(|error| refused(name, value, &error, "a bool", "be True or False"))
}

/// A number of things.
pub(crate) fn size(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let found = whole(name, value)?;
    usize::try_from(found)
        .map_err(|_| PyValueError::new_err(format!("`{name}` is {found}, must not be negative")))
}

/// A real number; an integer beyond float64 is a wrong value like any other, not an overflow.
pub(crate) fn number(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value
        .extract()
        .map_err(|error| refused(name, value, &error, "a number", "fit into float64"))
}

/// Text or `None`.
pub(crate) fn maybe_text<'a>(name: &str, value: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a str>> {
    (!value.is_none()).then(|| text(name, value)).transpose()
}

/// A whole number or `None`.
pub(crate) fn maybe_whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    (!value.is_none()).then(|| whole(name, value)).transpose()
}

/// A real number or `None`.
pub(crate) fn maybe_number(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    (!value.is_none()).then(|| number(name, value)).transpose()
}

/// A word.
pub(crate) fn text<'a>(name: &str, value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let Ok(string) = value.cast::<PyString>() else {
        return Err(wrong_type(name, value, "a string"));
    };
    string.to_str().map_err(|_| {
        PyValueError::new_err(format!(
            "`{name}` holds half a surrogate pair, must be text; write one of the legal words"
        ))
    })
}

#[cold]
fn refused(name: &str, value: &Bound<'_, PyAny>, error: &PyErr, kind: &str, fit: &str) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(value.py()) {
        PyValueError::new_err(format!("`{name}` is {}, must {fit}", digits(value)))
    } else {
        wrong_type(name, value, kind)
    }
}

fn wrong_type(name: &str, value: &Bound<'_, PyAny>, kind: &str) -> PyErr {
    PyTypeError::new_err(format!("`{name}` is {}, must be {kind}", described(value)))
}

/// The number as Python writes it; one of hundreds of digits would drown the message.
fn digits(value: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 80;
    match value.str() {
        Ok(text) if text.len().is_ok_and(|len| len <= MOST) => text.to_string(),
        _ => "a number of hundreds of digits".into(),
    }
}
