//! `token_kl` for Python.

use pyo3::prelude::*;
use rlkernels::kl::{self, Estimator, Reduction};
use rlkernels::{Error, Float};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{Array, Element, Floats, Layout, Output, by_float};

/// KL(policy || reference) per token or per sequence, from samples of the policy; documented in the type stub.
#[pyfunction]
#[pyo3(signature = (policy, reference, *, estimator, mask=None, lengths=None, reduction="none", out=None))]
pub(crate) fn token_kl<'py>(
    policy: &Bound<'py, PyAny>,
    reference: &Bound<'py, PyAny>,
    estimator: &str,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    reduction: &str,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let estimator: Estimator = estimator.parse().map_err(value_error)?;
    let reduction = parsed(reduction)?;
    by_float!(Floats::extract("policy", policy)?, |policy| {
        let layout = Layout::extract(&policy, mask, lengths)?;
        computed(&policy, reference, estimator, &layout, reduction, out)
    })
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
    estimator: Estimator,
    layout: &Layout<'py>,
    reduction: Option<Reduction>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = policy.py();
    let reference = policy.like("reference", reference)?;
    let shape = match reduction {
        None => *policy.shape(),
        Some(_) => layout.sequences(),
    };
    let mut out = Output::<T>::new_or(py, out, &shape, &[policy, &reference, layout])?;
    let (rows, to) = (layout.rows(), out.as_mut_slice());
    let (policy, reference) = (policy.as_slice(), reference.as_slice());
    detach_if_large(py, policy.len(), || match reduction {
        None => kl::token_kl(policy, reference, estimator, &rows, to),
        Some(reduction) => kl::sequence_kl(policy, reference, estimator, &rows, reduction, to),
    })
    .map_err(value_error)?;
    out.finish()
}
