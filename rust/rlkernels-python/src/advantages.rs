//! `group_advantages`, `normalise_then_sum` and `gae` for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rlkernels::Float;
use rlkernels::advantages::{self, Convention, Episodes, Stages};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{
    Array, Element, Floats, Layout, Output, Reads, Shape, arguments, by_float, shown,
};

arguments! { whole group_size, text scale, whole ddof, number eps, text eps_mode, text baseline,
whole group_ddof, number group_eps, whole batch_ddof, number batch_eps,
number gamma, number lam }

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/group_advantages"))]
#[pyfunction]
#[pyo3(signature = (rewards, group_size, *, scale="group", ddof=1, eps=1e-4, eps_mode="add", baseline="mean", out=None))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn group_advantages<'py>(
    rewards: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = group_size)] group_size: i64,
    #[pyo3(from_py_with = scale)] scale: &str,
    #[pyo3(from_py_with = ddof)] ddof: i64,
    #[pyo3(from_py_with = eps)] eps: f64,
    #[pyo3(from_py_with = eps_mode)] eps_mode: &str,
    #[pyo3(from_py_with = baseline)] baseline: &str,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let convention = Convention {
        scale: scale.parse().map_err(value_error)?,
        ddof,
        eps,
        eps_mode: eps_mode.parse().map_err(value_error)?,
        baseline: baseline.parse().map_err(value_error)?,
    };
    by_float!(Floats::numbers("rewards", rewards)?, |rewards| computed(
        rewards.one_dimensional()?,
        group_size,
        &convention,
        out
    ))
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/normalise_then_sum"))]
#[pyfunction]
#[pyo3(signature = (rewards, weights, group_size, *, group_ddof, group_eps, batch_ddof, batch_eps, out=None))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn normalise_then_sum<'py>(
    rewards: &Bound<'py, PyAny>,
    weights: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = group_size)] group_size: i64,
    #[pyo3(from_py_with = group_ddof)] group_ddof: i64,
    #[pyo3(from_py_with = group_eps)] group_eps: f64,
    #[pyo3(from_py_with = batch_ddof)] batch_ddof: i64,
    #[pyo3(from_py_with = batch_eps)] batch_eps: f64,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let stages = Stages {
        group_ddof,
        group_eps,
        batch_ddof,
        batch_eps,
    };
    by_float!(Floats::numbers("rewards", rewards)?, |rewards| {
        let weights = rewards.numbers("weights", weights)?.one_dimensional()?;
        summed(&rewards, &weights, group_size, &stages, out)
    })
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/gae"))]
#[pyfunction]
#[pyo3(signature = (rewards, values, *, gamma, lam, bootstrap=None, terminal=None, mask=None, lengths=None, out=None))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn gae<'py>(
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = gamma)] gamma: f64,
    #[pyo3(from_py_with = lam)] lam: f64,
    bootstrap: Option<&Bound<'py, PyAny>>,
    terminal: Option<&Bound<'py, PyAny>>,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    by_float!(Floats::extract("values", values)?, |values| {
        let rewards = values.numbers("rewards", rewards)?;
        let values = values.shaped(rewards.shape(), "rewards")?;
        let layout = Layout::extract(&rewards, mask, lengths)?;
        let bootstrap = bootstrap
            .map(|value| rewards.of_type("bootstrap", value)?.one_dimensional())
            .transpose()?;
        let terminal = terminal
            .map(|value| Array::mask("terminal", value, &rewards))
            .transpose()?;
        let mut reads: Vec<&dyn Reads> = vec![&rewards, &values, &layout];
        reads.extend(bootstrap.as_ref().map(|array| array as &dyn Reads));
        reads.extend(terminal.as_ref().map(|array| array as &dyn Reads));
        let py = rewards.py();
        let mut out = Output::new_or(py, out, rewards.shape(), &reads)?;
        let episodes = Episodes {
            rewards: rewards.as_slice(),
            values: values.as_slice(),
            bootstrap: bootstrap.as_ref().map(Array::as_slice),
            terminal: terminal.as_ref().map(Array::as_slice),
        };
        let (rows, to) = (layout.rows(), out.as_mut_slice());
        detach_if_large(py, episodes.rewards.len(), || {
            advantages::gae(&episodes, &rows, gamma, lam, to)
        })
        .map_err(value_error)?;
        out.finish()
    })
}

fn summed<'py, T: Element + Float>(
    rewards: &Array<'py, T>,
    weights: &Array<'py, T>,
    group_size: i64,
    stages: &Stages,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = rewards.py();
    let &[rows, functions] = &**rewards.shape() else {
        return Err(PyValueError::new_err(format!(
            "`rewards` has shape {}, must be (rows, reward functions)",
            shown(rewards.shape())
        )));
    };
    if functions != weights.as_slice().len() {
        return Err(PyValueError::new_err(format!(
            "`weights` has {} elements, must have {functions} like the columns of `rewards`",
            weights.as_slice().len()
        )));
    }
    let mut out = Output::<T>::new_or(py, out, &Shape::line(rows), &[rewards, weights])?;
    let to = out.as_mut_slice();
    let (rewards, weights) = (rewards.as_slice(), weights.as_slice());
    detach_if_large(py, rewards.len(), || {
        advantages::normalise_then_sum(rewards, weights, group_size, stages, to)
    })
    .map_err(value_error)?;
    out.finish()
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
