//! `group_advantages` for Python.

use pyo3::prelude::*;
use rlkernels::Float;
use rlkernels::advantages::{self, Convention};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{Array, Element, Floats, Output, by_float, whole};

/// Advantages `(reward - baseline) / divisor` of prompt-major rewards, in groups of `group_size`.
///
/// The documentation stands in the type stub `rlkernels/__init__.pyi`. The defaults are TRL's choice.
#[pyfunction]
#[pyo3(signature = (rewards, group_size, *, scale="group", ddof=1, eps=1e-4, eps_mode="add", baseline="mean", out=None))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn group_advantages<'py>(
    rewards: &Bound<'py, PyAny>,
    group_size: &Bound<'py, PyAny>,
    scale: &str,
    ddof: i64,
    eps: f64,
    eps_mode: &str,
    baseline: &str,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let convention = Convention {
        scale: scale.parse().map_err(value_error)?,
        ddof,
        eps,
        eps_mode: eps_mode.parse().map_err(value_error)?,
        baseline: baseline.parse().map_err(value_error)?,
    };
    let group_size = whole("group_size", group_size)?;
    by_float!(Floats::extract("rewards", rewards)?, |rewards| computed(
        rewards.one_dimensional()?,
        group_size,
        &convention,
        out
    ))
}

fn computed<'py, T: Element + Float>(
    rewards: Array<'py, T>,
    group_size: i64,
    convention: &Convention,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut out = Output::<T>::new_or(rewards.py(), out, rewards.shape(), &[&rewards])?;
    let (py, rewards, to) = (rewards.py(), rewards.as_slice(), out.as_mut_slice());
    detach_if_large(py, rewards.len(), || {
        advantages::group_advantages(rewards, group_size, convention, to)
    })
    .map_err(value_error)?;
    out.finish()
}
