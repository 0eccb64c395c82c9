//! The core's errors as Python exceptions.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

/// Every core error is about a value: `ValueError`.
pub(crate) fn value_error(error: rlkernels::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
