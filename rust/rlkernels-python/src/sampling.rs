//! `filtered_logprobs` and `sample_tokens` for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rlkernels::sampling::{self, Batch, Filters};
use rlkernels::{Error, Float};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{
    Array, Element, Floats, Logits, Output, Reads, Shape, arguments, integers, is_array_of,
    scalars, shown,
};

arguments! {
    text order, number temperature, whole top_k, number top_p, number min_p, number xtc_probability,
    number xtc_threshold, number repetition_penalty, text ties, whole min_tokens_to_keep, number presence_penalty,
    number frequency_penalty,
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/filtered_logprobs"))]
#[pyfunction]
#[pyo3(signature = (
    logits, *, order, temperature, top_k=0, top_p=1.0, min_p=0.0, xtc_probability=0.0, xtc_threshold=0.1, xtc_coin=None,
    repetition_penalty=1.0, history=None, ties="library", min_tokens_to_keep=1, xtc_special_tokens=None,
    presence_penalty=0.0, frequency_penalty=0.0, generated=None, logit_bias=None, out=None
))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn filtered_logprobs<'py>(
    py: Python<'py>,
    logits: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = order)] order: &str,
    #[pyo3(from_py_with = temperature)] temperature: f64,
    #[pyo3(from_py_with = top_k)] top_k: i64,
    #[pyo3(from_py_with = top_p)] top_p: f64,
    #[pyo3(from_py_with = min_p)] min_p: f64,
    #[pyo3(from_py_with = xtc_probability)] xtc_probability: f64,
    #[pyo3(from_py_with = xtc_threshold)] xtc_threshold: f64,
    xtc_coin: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = repetition_penalty)] repetition_penalty: f64,
    history: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = ties)] ties: &str,
    #[pyo3(from_py_with = min_tokens_to_keep)] min_tokens_to_keep: i64,
    xtc_special_tokens: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = presence_penalty)] presence_penalty: f64,
    #[pyo3(from_py_with = frequency_penalty)] frequency_penalty: f64,
    generated: Option<&Bound<'py, PyAny>>,
    logit_bias: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let filters = Filters {
        order: order.parse().map_err(value_error)?,
        ties: ties.parse().map_err(value_error)?,
        temperature,
        min_tokens_to_keep: count("min_tokens_to_keep", min_tokens_to_keep, 1)?,
        top_k: count("top_k", top_k, 0)?,
        top_p,
        min_p,
        xtc_probability,
        xtc_threshold,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
    };
    let rows = Rows::extract(
        logits,
        xtc_coin,
        history,
        generated,
        logit_bias,
        xtc_special_tokens,
    )?;
    match out.filter(|&out| is_array_of::<f32>(out)) {
        Some(out) => filtered::<f32>(py, &rows, &filters, Some(out)),
        None => filtered::<f64>(py, &rows, &filters, out),
    }
}

fn filtered<'py, T: Element + Float>(
    py: Python<'py>,
    rows: &Rows<'py>,
    filters: &Filters,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut out = Output::<T>::new_or(py, out, rows.shape(), &rows.reads())?;
    let (batch, to) = (rows.batch(), out.as_mut_slice());
    detach_if_large(py, to.len(), || {
        sampling::filtered_logprobs(&batch, filters, to)
    })
    .map_err(value_error)?;
    out.finish()
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/sample_tokens"))]
#[pyfunction]
#[pyo3(signature = (
    logits, uniforms, *, order, temperature, top_k=0, top_p=1.0, min_p=0.0, xtc_probability=0.0, xtc_threshold=0.1,
    xtc_coin=None, repetition_penalty=1.0, history=None, ties="library", min_tokens_to_keep=1,
    xtc_special_tokens=None, presence_penalty=0.0, frequency_penalty=0.0, generated=None, logit_bias=None
))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn sample_tokens<'py>(
    py: Python<'py>,
    logits: &Bound<'py, PyAny>,
    uniforms: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = order)] order: &str,
    #[pyo3(from_py_with = temperature)] temperature: f64,
    #[pyo3(from_py_with = top_k)] top_k: i64,
    #[pyo3(from_py_with = top_p)] top_p: f64,
    #[pyo3(from_py_with = min_p)] min_p: f64,
    #[pyo3(from_py_with = xtc_probability)] xtc_probability: f64,
    #[pyo3(from_py_with = xtc_threshold)] xtc_threshold: f64,
    xtc_coin: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = repetition_penalty)] repetition_penalty: f64,
    history: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = ties)] ties: &str,
    #[pyo3(from_py_with = min_tokens_to_keep)] min_tokens_to_keep: i64,
    xtc_special_tokens: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = presence_penalty)] presence_penalty: f64,
    #[pyo3(from_py_with = frequency_penalty)] frequency_penalty: f64,
    generated: Option<&Bound<'py, PyAny>>,
    logit_bias: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let filters = Filters {
        order: order.parse().map_err(value_error)?,
        ties: ties.parse().map_err(value_error)?,
        temperature,
        min_tokens_to_keep: count("min_tokens_to_keep", min_tokens_to_keep, 1)?,
        top_k: count("top_k", top_k, 0)?,
        top_p,
        min_p,
        xtc_probability,
        xtc_threshold,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
    };
    let rows = Rows::extract(
        logits,
        xtc_coin,
        history,
        generated,
        logit_bias,
        xtc_special_tokens,
    )?;
    let uniforms = Numbers::extract("uniforms", uniforms, rows.count(), "the rows of `logits`")?;
    let mut tokens = Output::<i64>::new(py, &[rows.count()])?;
    let mut logprobs = Output::<f64>::new(py, &[rows.count()])?;
    let (batch, uniforms) = (rows.batch(), uniforms.as_slice());
    let (to_tokens, to_logprobs) = (tokens.as_mut_slice(), logprobs.as_mut_slice());
    detach_if_large(py, batch.logits.len(), || {
        sampling::sample_tokens(&batch, &filters, uniforms, to_tokens, to_logprobs)
    })
    .map_err(value_error)?;
    PyTuple::new(py, [tokens.finish()?, logprobs.finish()?])
}

fn count(argument: &'static str, found: i64, least: i64) -> PyResult<usize> {
    usize::try_from(found).map_err(|_| {
        value_error(Error::TooSmall {
            argument,
            found,
            least,
        })
    })
}

/// Logits with what belongs to each of their rows.
struct Rows<'py> {
    logits: Logits<'py>,
    history: Option<Array<'py, i64>>,
    generated: Option<Array<'py, i64>>,
    logit_bias: Option<Numbers<'py>>,
    xtc_coins: Option<Numbers<'py>>,
    xtc_special_tokens: Option<Array<'py, i64>>,
}

impl<'py> Rows<'py> {
    fn extract(
        logits: &Bound<'py, PyAny>,
        xtc_coin: Option<&Bound<'py, PyAny>>,
        history: Option<&Bound<'py, PyAny>>,
        generated: Option<&Bound<'py, PyAny>>,
        logit_bias: Option<&Bound<'py, PyAny>>,
        xtc_special_tokens: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let logits = Logits::extract("logits", logits)?;
        let shape = shape(&logits);
        let &[rows, vocabulary] = &shape[..] else {
            return Err(PyValueError::new_err(format!(
                "`logits` has shape {}, must be (rows, vocabulary)",
                shown(shape)
            )));
        };
        let history = ids_of_rows("history", history, rows)?;
        let generated = ids_of_rows("generated", generated, rows)?;
        let xtc_special_tokens = xtc_special_tokens
            .map(|ids| integers("xtc_special_tokens", ids)?.one_dimensional())
            .transpose()?;
        let xtc_coins = xtc_coin
            .map(|coins| Numbers::extract("xtc_coin", coins, rows, "the rows of `logits`"))
            .transpose()?;
        let like = "the vocabulary of `logits`";
        let logit_bias = logit_bias
            .map(|bias| match bias.cast::<PyDict>() {
                Ok(named) => Numbers::of_ids("logit_bias", named, vocabulary),
                Err(_) => Numbers::extract("logit_bias", bias, vocabulary, like),
            })
            .transpose()?;
        Ok(Self {
            logits,
            history,
            generated,
            logit_bias,
            xtc_coins,
            xtc_special_tokens,
        })
    }

    fn shape(&self) -> &Shape {
        shape(&self.logits)
    }

    fn count(&self) -> usize {
        self.shape()[0]
    }

    /// What a result must not overlap.
    fn reads(&self) -> Vec<&dyn Reads> {
        let logits: &dyn Reads = match &self.logits {
            Logits::F16(bits) | Logits::BF16(bits) => bits,
            Logits::F32(values) => values,
            Logits::F64(values) => values,
        };
        let ids = [&self.history, &self.generated, &self.xtc_special_tokens];
        let ids = ids.into_iter().flatten().map(|ids| ids as &dyn Reads);
        let numbers = [&self.xtc_coins, &self.logit_bias];
        let numbers = numbers.into_iter().flatten().filter_map(Numbers::reads);
        std::iter::once(logits).chain(ids).chain(numbers).collect()
    }

    fn batch(&self) -> Batch<'_> {
        Batch {
            logits: match &self.logits {
                Logits::F16(bits) => sampling::Logits::F16(bits.as_slice()),
                Logits::BF16(bits) => sampling::Logits::Bf16(bits.as_slice()),
                Logits::F32(values) => sampling::Logits::F32(values.as_slice()),
                Logits::F64(values) => sampling::Logits::F64(values.as_slice()),
            },
            rows: self.count(),
            vocabulary: self.shape()[1],
            history: self.history.as_ref().map(Array::as_slice),
            generated: self.generated.as_ref().map(Array::as_slice),
            logit_bias: self.logit_bias.as_ref().map(Numbers::as_slice),
            xtc_coins: self.xtc_coins.as_ref().map(Numbers::as_slice),
            xtc_special_tokens: self
                .xtc_special_tokens
                .as_ref()
                .map(Array::as_slice)
                .unwrap_or_default(),
        }
    }
}

/// Ids of earlier tokens, as many for each row.
fn ids_of_rows<'py>(
    name: &'static str,
    ids: Option<&Bound<'py, PyAny>>,
    rows: usize,
) -> PyResult<Option<Array<'py, i64>>> {
    let ids = ids.map(|ids| integers(name, ids)).transpose()?;
    if let Some(shape) = ids.as_ref().map(Array::shape)
        && !matches!(shape[..], [first, _] if first == rows)
    {
        return Err(PyValueError::new_err(format!(
            "`{name}` has shape {}, must be ({rows}, ids) like the rows of `logits`",
            shown(shape)
        )));
    }
    Ok(ids)
}

fn shape<'a>(logits: &'a Logits<'_>) -> &'a Shape {
    match logits {
        Logits::F16(bits) | Logits::BF16(bits) => bits.shape(),
        Logits::F32(values) => values.shape(),
        Logits::F64(values) => values.shape(),
    }
}

/// One float64 per row or token; float32 is widened, exactly.
struct Numbers<'py> {
    /// None where they were given by id.
    given: Option<Floats<'py>>,
    widened: Vec<f64>,
}

impl<'py> Numbers<'py> {
    fn extract(
        name: &'static str,
        value: &Bound<'py, PyAny>,
        count: usize,
        like: &'static str,
    ) -> PyResult<Self> {
        let given = Floats::extract(name, value)?;
        let given = match given {
            Floats::F32(values) => Floats::F32(values.shaped(&[count], like)?),
            Floats::F64(values) => Floats::F64(values.shaped(&[count], like)?),
        };
        let widened = match &given {
            Floats::F32(values) => values.as_slice().iter().map(|&x| f64::from(x)).collect(),
            Floats::F64(_) => Vec::new(),
        };
        let given = Some(given);
        Ok(Self { given, widened })
    }

    /// Numbers of some tokens, 0 of the others.
    fn of_ids(name: &'static str, numbers: &Bound<'py, PyDict>, count: usize) -> PyResult<Self> {
        let mut widened = vec![0.0; count];
        for (id, number) in numbers {
            let id = scalars::whole("logit_bias key", &id)?;
            let place = usize::try_from(id).ok().and_then(|id| widened.get_mut(id));
            let Some(place) = place else {
                return Err(PyValueError::new_err(format!(
                    "`{name}` has the key {id}, must have ids of the vocabulary, 0 to {}",
                    count.saturating_sub(1)
                )));
            };
            *place = scalars::number("logit_bias value", &number)?;
        }
        Ok(Self {
            given: None,
            widened,
        })
    }

    fn reads(&self) -> Option<&dyn Reads> {
        match self.given.as_ref()? {
            Floats::F32(values) => Some(values),
            Floats::F64(values) => Some(values),
        }
    }

    fn as_slice(&self) -> &[f64] {
        match &self.given {
            Some(Floats::F64(values)) => values.as_slice(),
            _ => &self.widened,
        }
    }
}
