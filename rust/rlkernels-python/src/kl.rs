//! `token_kl` for Python.

use numpy::{
    Element, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rlkernels::kl::{self, Estimator, Reduction};
use rlkernels::rows::{Rows, Valid};
use rlkernels::{Error, Float};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{FloatArray, elements, float_array, integer_array, mask_array, shown};

/// KL(policy || reference) per token or per sequence, from samples of the policy; documented in the type stub.
#[pyfunction]
#[pyo3(signature = (policy, reference, *, estimator, mask=None, lengths=None, reduction="none"))]
pub(crate) fn token_kl<'py>(
    policy: &Bound<'py, PyAny>,
    reference: &Bound<'py, PyAny>,
    estimator: &str,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    reduction: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let estimator: Estimator = estimator.parse().map_err(value_error)?;
    let reduction = parsed(reduction)?;
    match (
        float_array("policy", policy)?,
        float_array("reference", reference)?,
    ) {
        (FloatArray::F32(policy), FloatArray::F32(reference)) => {
            computed(&policy, &reference, estimator, mask, lengths, reduction)
        }
        (FloatArray::F64(policy), FloatArray::F64(reference)) => {
            computed(&policy, &reference, estimator, mask, lengths, reduction)
        }
        (policy, reference) => Err(PyTypeError::new_err(format!(
            "`policy` is {} and `reference` is {}, must be the same type; convert one of them with astype",
            policy.dtype(),
            reference.dtype()
        ))),
    }
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
    policy: &PyReadonlyArrayDyn<'py, T>,
    reference: &PyReadonlyArrayDyn<'py, T>,
    estimator: Estimator,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    reduction: Option<Reduction>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = policy.py();
    let shape = policy.shape();
    let (rows, width) = match *shape {
        [width] => (1, width),
        [rows, width] => (rows, width),
        _ => {
            return Err(PyValueError::new_err(format!(
                "`policy` has shape {}, must be (tokens,) or (rows, tokens)",
                shown(shape)
            )));
        }
    };
    if reference.shape() != shape {
        return Err(PyValueError::new_err(format!(
            "`reference` has shape {}, must be {} like `policy`",
            shown(reference.shape()),
            shown(shape)
        )));
    }
    if mask.is_some() && lengths.is_some() {
        return Err(PyValueError::new_err(
            "both `mask` and `lengths` are given, must be at most one of them",
        ));
    }
    let ragged = shape.len() == 1 && lengths.is_some();
    let scalar = shape.len() == 1 && !ragged;
    let mask = mask.map(|m| mask_array("mask", m, shape)).transpose()?;
    let lengths = lengths.map(|l| integer_array("lengths", l)).transpose()?;
    let valid = match (&mask, &lengths) {
        (Some(mask), _) => Valid::Mask(elements(mask)?),
        (None, Some(lengths)) => Valid::Prefix(elements(lengths)?),
        (None, None) => Valid::All,
    };
    let rows = match valid {
        Valid::Prefix(lengths) if ragged => Rows::Ragged(lengths),
        _ => Rows::Padded { rows, width, valid },
    };
    let (policy, reference) = (elements(policy)?, elements(reference)?);
    let Some(reduction) = reduction else {
        let result = PyArrayDyn::<T>::zeros(py, shape, false);
        let mut guard = result.readwrite();
        let out = guard.as_slice_mut()?;
        detach_if_large(py, policy.len(), || {
            kl::token_kl(policy, reference, estimator, &rows, out)
        })
        .map_err(value_error)?;
        drop(guard);
        return Ok(result.into_any());
    };
    let result = PyArray1::<T>::zeros(py, rows.count(), false);
    let mut guard = result.readwrite();
    let out = guard.as_slice_mut()?;
    detach_if_large(py, policy.len(), || {
        kl::sequence_kl(policy, reference, estimator, &rows, reduction, out)
    })
    .map_err(value_error)?;
    drop(guard);
    if scalar {
        return result.into_any().get_item(0);
    }
    Ok(result.into_any())
}
