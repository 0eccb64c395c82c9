//! The core's errors as Python exceptions.

use std::panic;
use std::sync::{Mutex, PoisonError};

use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

/// Why a kernel gave no result.
pub(crate) enum Failure {
    /// It refused a value.
    Refused(rlkernels::Error),
    /// It panicked: an array changed after it was checked, or rlkernels has a bug.
    Panicked,
}

impl From<rlkernels::Error> for Failure {
    fn from(error: rlkernels::Error) -> Self {
        Self::Refused(error)
    }
}

/// Every core error is about a value: `ValueError`. A panic is a `RuntimeError`.
pub(crate) fn value_error(failure: impl Into<Failure>) -> PyErr {
    match failure.into() {
        Failure::Refused(error) => PyValueError::new_err(error.to_string()),
        Failure::Panicked => PyRuntimeError::new_err(format!(
            "an input array changed during the call, must stay as it is until the call returns: another thread wrote \
             to it; keep it away, or pass a copy. If nobody wrote to it, this is a bug of rlkernels: {}",
            LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner)
        )),
    }
}

/// Place and message of the last panic of this extension.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps panics for the exception's message, where the default hook would print them to stderr.
pub(crate) fn remember_panics() {
    panic::set_hook(Box::new(|panic| {
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
}
