//! `selective_log_softmax` and its backward for Python.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rlkernels::logsoftmax::{
    Bf16, F16, Format, Ids, selective_log_softmax as forward,
    selective_log_softmax_backward as backward,
};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{Array, Element, Logits, Output, Reads, Shape, arguments, integers, shown};

arguments! { number temperature, truth entropy, maybe_whole ignore_index }

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
#[pyo3(signature = (logits, ids, *, temperature=1.0, entropy=false, ignore_index=None))]
pub(crate) fn selective_log_softmax<'py>(
    logits: &Bound<'py, PyAny>,
    ids: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = temperature)] temperature: f64,
    #[pyo3(from_py_with = entropy)] entropy: bool,
    #[pyo3(from_py_with = ignore_index)] ignore_index: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    by_format!(Logits::extract("logits", logits)?, |logits, F| {
        let tokens = Tokens::extract(&logits, ids, ignore_index)?;
        forwards::<F>(&logits, &tokens, temperature, entropy)
    })
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/selective_log_softmax_backward"))]
#[pyfunction]
#[pyo3(signature = (logits, ids, grad_logprobs, *, temperature=1.0, grad_entropy=None, ignore_index=None, out=None))]
pub(crate) fn selective_log_softmax_backward<'py>(
    logits: &Bound<'py, PyAny>,
    ids: &Bound<'py, PyAny>,
    grad_logprobs: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = temperature)] temperature: f64,
    grad_entropy: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = ignore_index)] ignore_index: Option<i64>,
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
        let tokens = Tokens::extract(&logits, ids, ignore_index)?;
        backwards::<F>(
            &logits,
            &tokens,
            grad_logprobs,
            temperature,
            grad_entropy,
            out,
        )
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

/// The tokens that are asked for, and how they lie beside the rows of logits.
struct Tokens<'py> {
    ids: Array<'py, i64>,
    ignore_index: Option<i64>,
    /// The shape of the logits without the vocabulary.
    rows: Shape,
    per_row: usize,
    vocabulary: usize,
}

impl<'py> Tokens<'py> {
    fn extract<T: Element>(
        logits: &Array<'py, T>,
        ids: &Bound<'py, PyAny>,
        ignore_index: Option<i64>,
    ) -> PyResult<Self> {
        let Some((rows, vocabulary)) = logits.shape().split_last() else {
            return Err(PyValueError::new_err(
                "`logits` has shape (), must have a last dimension, the vocabulary",
            ));
        };
        let ids = integers("ids", ids)?;
        let per_row = match ids.shape().split_last() {
            _ if **ids.shape() == *rows => 1,
            Some((first, last)) if *first == *rows && last > 0 => last,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "`ids` has shape {}, must be {} like `logits` without the vocabulary, or have one more dimension, of \
                     several tokens for each position",
                    shown(ids.shape()),
                    shown(&rows)
                )));
            }
        };
        Ok(Self {
            ids,
            ignore_index,
            rows,
            per_row,
            vocabulary,
        })
    }

    fn ids(&self) -> Ids<'_> {
        Ids {
            tokens: self.ids.as_slice(),
            per_row: self.per_row,
            ignore_index: self.ignore_index,
        }
    }
}

fn forwards<'py, F: Format<Word: Element, Result: Element>>(
    logits: &Array<'py, F::Word>,
    tokens: &Tokens<'py>,
    temperature: f64,
    entropy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = logits.py();
    let mut logprobs = Output::<F::Result>::new(py, tokens.ids.shape())?;
    let (words, ids, vocabulary) = (logits.as_slice(), tokens.ids(), tokens.vocabulary);
    if !entropy {
        let to = logprobs.as_mut_slice();
        detach_if_large(py, words.len(), || {
            forward::<F>(words, ids, vocabulary, temperature, to, None)
        })
        .map_err(value_error)?;
        return logprobs.finish();
    }
    let mut entropies = Output::<F::Result>::new(py, &tokens.rows)?;
    let (to, to_entropy) = (logprobs.as_mut_slice(), entropies.as_mut_slice());
    detach_if_large(py, words.len(), || {
        forward::<F>(words, ids, vocabulary, temperature, to, Some(to_entropy))
    })
    .map_err(value_error)?;
    Ok(PyTuple::new(py, [logprobs.finish()?, entropies.finish()?])?.into_any())
}

/// A gradient from above, of the results' type.
fn upstream<'py, T: Element>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
    shape: &Shape,
    like: &str,
) -> PyResult<Array<'py, T>> {
    let found = Array::<T>::floats(name, value)?.map_err(|dtype| {
        PyTypeError::new_err(format!(
            "`{name}` is {dtype}, must be {} like the log-probabilities; convert it with astype",
            T::NAME
        ))
    })?;
    found.shaped(shape, like)
}

fn backwards<'py, F: Format<Word: Element, Result: Element>>(
    logits: &Array<'py, F::Word>,
    tokens: &Tokens<'py>,
    grad_logprobs: &Bound<'py, PyAny>,
    temperature: f64,
    grad_entropy: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = logits.py();
    let grads = upstream::<F::Result>("grad_logprobs", grad_logprobs, tokens.ids.shape(), "ids")?;
    let like = "`logits` without the vocabulary";
    let entropies = grad_entropy
        .map(|grads| upstream::<F::Result>("grad_entropy", grads, &tokens.rows, like))
        .transpose()?;
    let entropies_or_grads: &dyn Reads = entropies.as_ref().unwrap_or(&grads);
    let reads: [&dyn Reads; 4] = [logits, &tokens.ids, &grads, entropies_or_grads];
    let mut gradient = Output::<F::Word>::new_or(py, out, logits.shape(), &reads)?;
    let (words, ids, to) = (logits.as_slice(), tokens.ids(), gradient.as_mut_slice());
    let vocabulary = tokens.vocabulary;
    let (grads, entropies) = (grads.as_slice(), entropies.as_ref().map(Array::as_slice));
    detach_if_large(py, words.len(), || {
        backward::<F>(words, ids, grads, entropies, vocabulary, temperature, to)
    })
    .map_err(value_error)?;
    gradient.finish()
}
