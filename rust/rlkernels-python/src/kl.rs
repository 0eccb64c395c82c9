//! `token_kl` and `full_kl` for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rlkernels::kl::{self, Estimator, KlRatio, Reduction, Samples};
use rlkernels::{Error, Float};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{Array, Element, Floats, Layout, Output, arguments, by_float, shown};

arguments! { text estimator, text reduction, text kl_ratio }

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/token_kl"))]
#[pyfunction]
#[pyo3(signature = (policy, reference, *, estimator, mask=None, lengths=None, reduction="none", old=None, kl_ratio="none", out=None))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn token_kl<'py>(
    policy: &Bound<'py, PyAny>,
    reference: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = estimator)] estimator: &str,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = reduction)] reduction: &str,
    old: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = kl_ratio)] kl_ratio: &str,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let how = How {
        estimator: estimator.parse().map_err(value_error)?,
        reduction: parsed(reduction)?,
        ratio: kl_ratio.parse().map_err(value_error)?,
    };
    by_float!(Floats::extract("policy", policy)?, |policy| {
        let layout = Layout::extract(&policy, mask, lengths)?;
        let old = policy.maybe_like("old", old)?;
        computed(&policy, reference, old.as_ref(), &layout, &how, out)
    })
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/full_kl"))]
#[pyfunction]
#[pyo3(signature = (policy_logprobs, reference_logprobs, *, out=None))]
pub(crate) fn full_kl<'py>(
    policy_logprobs: &Bound<'py, PyAny>,
    reference_logprobs: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    by_float!(
        Floats::extract("policy_logprobs", policy_logprobs)?,
        |policy| { summed(&policy, reference_logprobs, out) }
    )
}

struct How {
    estimator: Estimator,
    reduction: Option<Reduction>,
    ratio: KlRatio,
}

fn parsed(reduction: &str) -> PyResult<Option<Reduction>> {
    match reduction {
        "none" => Ok(None),
        "sum" => Ok(Some(Reduction::Sum)),
        "mean" => Ok(Some(Reduction::Mean)),
        _ => Err(value_error(Error::UnknownChoice {
            argument: "reduction",
            found: reduction.into(),
            legal: "\"none\", \"sum\", \"mean\"",
        })),
    }
}

fn computed<'py, T: Element + Float>(
    policy: &Array<'py, T>,
    reference: &Bound<'py, PyAny>,
    old: Option<&Array<'py, T>>,
    layout: &Layout<'py>,
    how: &How,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = policy.py();
    let reference = policy.like("reference", reference)?;
    let shape = match how.reduction {
        None => *policy.shape(),
        Some(_) => layout.sequences(),
    };
    let old_or_policy = old.unwrap_or(policy);
    let reads: [&dyn crate::input::Reads; 4] = [policy, &reference, old_or_policy, layout];
    let mut out = Output::<T>::new_or(py, out, &shape, &reads)?;
    let (rows, to) = (layout.rows(), out.as_mut_slice());
    let samples = Samples {
        policy: policy.as_slice(),
        reference: reference.as_slice(),
        old: old.map(Array::as_slice),
    };
    let &How {
        estimator,
        reduction,
        ratio,
    } = how;
    detach_if_large(py, samples.policy.len(), || match reduction {
        None => kl::token_kl(&samples, estimator, ratio, &rows, to),
        Some(reduction) => kl::sequence_kl(&samples, estimator, ratio, &rows, reduction, to),
    })
    .map_err(value_error)?;
    out.finish()
}

fn summed<'py, T: Element + Float>(
    policy: &Array<'py, T>,
    reference: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = policy.py();
    let reference = policy.like("reference_logprobs", reference)?;
    let Some((rows, vocabulary)) = policy.shape().split_last().filter(|&(_, size)| size > 0) else {
        return Err(PyValueError::new_err(format!(
            "`policy_logprobs` has shape {}, must have a last dimension, the vocabulary, of at least 1",
            shown(policy.shape())
        )));
    };
    let mut out = Output::<T>::new_or(py, out, &rows, &[policy, &reference])?;
    let to = out.as_mut_slice();
    let (policy, reference) = (policy.as_slice(), reference.as_slice());
    detach_if_large(py, policy.len(), || {
        kl::full_kl(policy, reference, vocabulary, to)
    })
    .map_err(value_error)?;
    out.finish()
}
