//! `selective_log_softmax` and its backward for Python.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rlkernels::logsoftmax::{
    Bf16, F16, Format, selective_log_softmax as forward, selective_log_softmax_backward as backward,
};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{
    Array, Element, Floats, Logits, Output, Reads, Shape, arguments, integers, shown,
};

arguments! { number temperature, truth entropy }

/// Runs `$body` with the array of logits and its format.
macro_rules! by_format {
    ($logits:expr, |$array:ident, $format:ident| $body:expr) => {
        match $logits {
            Logits::F16($array) => {
                type $format = F16;
                $body
            }
            Logits::BF16($array) => {
                type $format = Bf16;
                $body
            }
            Logits::F32($array) => {
                type $format = f32;
                $body
            }
            Logits::F64($array) => {
                type $format = f64;
                $body
            }
        }
    };
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/selective_log_softmax"))]
#[pyfunction]
#[pyo3(signature = (logits, ids, *, temperature=1.0, entropy=false))]
pub(crate) fn selective_log_softmax<'py>(
    logits: &Bound<'py, PyAny>,
    ids: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = temperature)] temperature: f64,
    #[pyo3(from_py_with = entropy)] entropy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    by_format!(Logits::extract("logits", logits)?, |logits, F| {
        forwards::<F>(&logits, ids, temperature, entropy)
    })
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/selective_log_softmax_backward"))]
#[pyfunction]
#[pyo3(signature = (logits, ids, grad_logprobs, *, temperature=1.0, grad_entropy=None, out=None))]
pub(crate) fn selective_log_softmax_backward<'py>(
    logits: &Bound<'py, PyAny>,
    ids: &Bound<'py, PyAny>,
    grad_logprobs: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = temperature)] temperature: f64,
    grad_entropy: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let found = Logits::extract("logits", logits)?;
    let bfloat = matches!(found, Logits::BF16(_));
    let dtype = bfloat.then(|| bfloat16(logits.py())).transpose()?;
    if dtype.is_some() && out.is_some() {
        return Err(PyTypeError::new_err(
            "`out` is given with `logits` of bfloat16, must be left out: NumPy has no such type; use the result",
        ));
    }
    let gradient = by_format!(found, |logits, F| {
        backwards::<F>(&logits, ids, grad_logprobs, temperature, grad_entropy, out)
    })?;
    match dtype {
        Some(dtype) => gradient.call_method1("view", (dtype,)),
        None => Ok(gradient),
    }
}

/// The type that the package `ml_dtypes` adds to NumPy.
fn bfloat16(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let package = py.import("ml_dtypes").map_err(|_| {
        PyTypeError::new_err(
            "`logits` is of bfloat16, for whose gradient NumPy has no type; install the package ml_dtypes, which adds \
             it, or convert the logits to float32",
        )
    })?;
    package.getattr("bfloat16")
}

/// One row for every id, and the size of the vocabulary.
fn rows<'py, T: Element>(
    logits: &Array<'py, T>,
    ids: &Bound<'py, PyAny>,
) -> PyResult<(Array<'py, i64>, Shape, usize)> {
    let Some((rows, vocabulary)) = logits.shape().split_last() else {
        return Err(PyValueError::new_err(
            "`logits` has shape (), must have a last dimension, the vocabulary",
        ));
    };
    let ids = integers("ids", ids)?;
    if **ids.shape() != *rows {
        return Err(PyValueError::new_err(format!(
            "`ids` has shape {}, must be {} like `logits` without the vocabulary",
            shown(ids.shape()),
            shown(&rows)
        )));
    }
    Ok((ids, rows, vocabulary))
}

fn forwards<'py, F: Format<Word: Element, Result: Element>>(
    logits: &Array<'py, F::Word>,
    ids: &Bound<'py, PyAny>,
    temperature: f64,
    entropy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = logits.py();
    let (ids, shape, vocabulary) = rows(logits, ids)?;
    let mut logprobs = Output::<F::Result>::new(py, &shape)?;
    let (words, tokens) = (logits.as_slice(), ids.as_slice());
    if !entropy {
        let to = logprobs.as_mut_slice();
        detach_if_large(py, words.len(), || {
            forward::<F>(words, tokens, vocabulary, temperature, to, None)
        })
        .map_err(value_error)?;
        return logprobs.finish();
    }
    let mut entropies = Output::<F::Result>::new(py, &shape)?;
    let (to, to_entropy) = (logprobs.as_mut_slice(), entropies.as_mut_slice());
    detach_if_large(py, words.len(), || {
        forward::<F>(words, tokens, vocabulary, temperature, to, Some(to_entropy))
    })
    .map_err(value_error)?;
    Ok(PyTuple::new(py, [logprobs.finish()?, entropies.finish()?])?.into_any())
}

/// A type of results, as the gradients from above must have it.
trait Picked: Element {
    fn picked(floats: Floats<'_>) -> Option<Array<'_, Self>>;
}

impl Picked for f32 {
    fn picked(floats: Floats<'_>) -> Option<Array<'_, Self>> {
        match floats {
            Floats::F32(array) => Some(array),
            Floats::F64(_) => None,
        }
    }
}

impl Picked for f64 {
    fn picked(floats: Floats<'_>) -> Option<Array<'_, Self>> {
        match floats {
            Floats::F32(_) => None,
            Floats::F64(array) => Some(array),
        }
    }
}

/// A gradient from above: of the results' type and the shape of `ids`.
fn upstream<'py, T: Picked>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
    shape: &Shape,
) -> PyResult<Array<'py, T>> {
    let found = Floats::extract(name, value)?;
    let dtype = found.dtype();
    T::picked(found)
        .ok_or_else(|| {
            PyTypeError::new_err(format!(
                "`{name}` is {dtype}, must be {} like the log-probabilities; convert it with astype",
                T::NAME
            ))
        })?
        .shaped(shape, "ids")
}

fn backwards<'py, F: Format<Word: Element, Result: Picked>>(
    logits: &Array<'py, F::Word>,
    ids: &Bound<'py, PyAny>,
    grad_logprobs: &Bound<'py, PyAny>,
    temperature: f64,
    grad_entropy: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = logits.py();
    let (ids, shape, vocabulary) = rows(logits, ids)?;
    let grads = upstream::<F::Result>("grad_logprobs", grad_logprobs, &shape)?;
    let entropies = grad_entropy
        .map(|grads| upstream::<F::Result>("grad_entropy", grads, &shape))
        .transpose()?;
    let entropies_or_grads: &dyn Reads = entropies.as_ref().unwrap_or(&grads);
    let reads: [&dyn Reads; 4] = [logits, &ids, &grads, entropies_or_grads];
    let mut gradient = Output::<F::Word>::new_or(py, out, logits.shape(), &reads)?;
    let (words, tokens, to) = (logits.as_slice(), ids.as_slice(), gradient.as_mut_slice());
    let (grads, entropies) = (grads.as_slice(), entropies.as_ref().map(Array::as_slice));
    detach_if_large(py, words.len(), || {
        backward::<F>(words, tokens, grads, entropies, vocabulary, temperature, to)
    })
    .map_err(value_error)?;
    gradient.finish()
}
