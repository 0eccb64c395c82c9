//! `group_advantages` for Python.

use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use rlkernels::Float;
use rlkernels::advantages::{self, Convention};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{FloatArray, elements, float_array, one_dimensional, whole};

/// Advantages `(reward - baseline) / divisor` of prompt-major rewards, in groups of `group_size`.
///
/// The documentation stands in the type stub `rlkernels/__init__.pyi`. The defaults are TRL's choice.
#[pyfunction]
#[pyo3(signature = (rewards, group_size, *, scale="group", ddof=1, eps=1e-4, eps_mode="add", baseline="mean"))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn group_advantages<'py>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    group_size: &Bound<'py, PyAny>,
    scale: &str,
    ddof: i64,
    eps: f64,
    eps_mode: &str,
    baseline: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let convention = Convention {
        scale: scale.parse().map_err(value_error)?,
        ddof,
        eps,
        eps_mode: eps_mode.parse().map_err(value_error)?,
        baseline: baseline.parse().map_err(value_error)?,
    };
    let group_size = whole("group_size", group_size)?;
    match float_array("rewards", rewards)? {
        FloatArray::F32(array) => computed(py, &array, group_size, &convention),
        FloatArray::F64(array) => computed(py, &array, group_size, &convention),
    }
}

fn computed<'py, T: Element + Float>(
    py: Python<'py>,
    rewards: &PyReadonlyArrayDyn<'py, T>,
    group_size: i64,
    convention: &Convention,
) -> PyResult<Bound<'py, PyAny>> {
    one_dimensional("rewards", rewards.shape())?;
    let rewards = elements(rewards)?;
    let result = PyArray1::<T>::zeros(py, rewards.len(), false);
    let mut guard = result.readwrite();
    let out = guard.as_slice_mut()?;
    detach_if_large(py, rewards.len(), || {
        advantages::group_advantages(rewards, group_size, convention, out)
    })
    .map_err(value_error)?;
    drop(guard);
    Ok(result.into_any())
}
