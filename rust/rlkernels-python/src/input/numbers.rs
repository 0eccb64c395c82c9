//! Numbers that are given one by one.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::message::described;

/// A whole number; one beyond 64 bits is a wrong value like any other, not an overflow.
pub(crate) fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            PyValueError::new_err(format!("`{name}` is {value}, must fit into 64 bits"))
        } else {
            PyTypeError::new_err(format!(
                "`{name}` is {}, must be an integer",
                described(value)
            ))
        }
    })
}
