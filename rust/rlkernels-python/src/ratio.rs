//! `importance_ratio`, `importance_weights` and `ratio_statistics` for Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlkernels::ratio::{self, Correction, Level, WeightConvention};
use rlkernels::rows::Rows;
use rlkernels::{Float, Result};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{Array, Element, Floats, Layout, Output, arguments, by_float};

arguments! { text level, text correction, maybe_number c_min, number c_max, number epsilon_low, number epsilon_high }

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/importance_ratio"))]
#[pyfunction]
#[pyo3(signature = (policy, old, *, level, mask=None, lengths=None, out=None))]
pub(crate) fn importance_ratio<'py>(
    policy: &Bound<'py, PyAny>,
    old: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = level)] level: &str,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let level: Level = level.parse().map_err(value_error)?;
    by_float!(Floats::extract("policy", policy)?, |policy| {
        let layout = Layout::extract(&policy, mask, lengths)?;
        let old = policy.like("old", old)?;
        written(
            &policy,
            &old,
            &layout,
            level,
            out,
            |policy, old, rows, out| ratio::importance_ratio(policy, old, level, rows, out),
        )
    })
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/importance_weights"))]
#[pyfunction]
#[pyo3(signature = (old, sampling, *, correction, level, c_min=None, c_max, mask=None, lengths=None, out=None))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn importance_weights<'py>(
    old: &Bound<'py, PyAny>,
    sampling: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = correction)] correction: &str,
    #[pyo3(from_py_with = level)] level: &str,
    #[pyo3(from_py_with = c_min)] c_min: Option<f64>,
    #[pyo3(from_py_with = c_max)] c_max: f64,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let correction: Correction = correction.parse().map_err(value_error)?;
    let level: Level = level.parse().map_err(value_error)?;
    let convention = WeightConvention {
        correction,
        level,
        c_min,
        c_max,
    };
    by_float!(Floats::extract("old", old)?, |old| {
        let layout = Layout::extract(&old, mask, lengths)?;
        let sampling = old.like("sampling", sampling)?;
        written(
            &old,
            &sampling,
            &layout,
            level,
            out,
            |old, sampling, rows, out| {
                ratio::importance_weights(old, sampling, &convention, rows, out)
            },
        )
    })
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/ratio_statistics"))]
#[pyfunction]
#[pyo3(signature = (policy, behaviour, *, epsilon_low, epsilon_high, advantages=None, mask=None, lengths=None))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn ratio_statistics<'py>(
    py: Python<'py>,
    policy: &Bound<'py, PyAny>,
    behaviour: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = epsilon_low)] epsilon_low: f64,
    #[pyo3(from_py_with = epsilon_high)] epsilon_high: f64,
    advantages: Option<&Bound<'py, PyAny>>,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let statistics = by_float!(Floats::extract("policy", policy)?, |policy| {
        let layout = Layout::extract(&policy, mask, lengths)?;
        let behaviour = policy.like("behaviour", behaviour)?;
        let advantages = advantages
            .map(|value| policy.of_type("advantages", value)?.one_dimensional())
            .transpose()?;
        let advantages = advantages.as_ref().map(Array::as_slice);
        let rows = layout.rows();
        let (policy, behaviour) = (policy.as_slice(), behaviour.as_slice());
        detach_if_large(py, policy.len(), || {
            ratio::ratio_statistics(
                policy,
                behaviour,
                epsilon_low,
                epsilon_high,
                advantages,
                &rows,
            )
        })
        .map_err(value_error)?
    });
    let named = PyDict::new(py);
    for (name, value) in statistics.named() {
        named.set_item(name, value)?;
    }
    Ok(named)
}

/// Makes room for the result, one value per slot or per sequence, and lets `work` fill it.
fn written<'py, T: Element + Float>(
    policy: &Array<'py, T>,
    old: &Array<'py, T>,
    layout: &Layout<'py>,
    level: Level,
    out: Option<&Bound<'py, PyAny>>,
    work: impl Fn(&[T], &[T], &Rows<'_>, &mut [T]) -> Result<()> + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let py = policy.py();
    let shape = match level {
        Level::Token => *policy.shape(),
        _ => layout.sequences(),
    };
    let mut out = Output::<T>::new_or(py, out, &shape, &[policy, old, layout])?;
    let (rows, to) = (layout.rows(), out.as_mut_slice());
    let (policy, old) = (policy.as_slice(), old.as_slice());
    detach_if_large(py, policy.len(), || work(policy, old, &rows, to)).map_err(value_error)?;
    out.finish()
}
