//! `philox4x32_10`, `uniforms` and `xtc_coins` for Python.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;
use rlkernels::philox::{self, Draws};

use crate::broadcast::{common_shape, indices};
use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{Array, Output, integers, scalars, shown, unsigned};

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/philox4x32_10"))]
#[pyfunction]
pub(crate) fn philox4x32_10<'py>(
    py: Python<'py>,
    counter: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let counter = unsigned::<u32>("counter", counter)?;
    let key = unsigned::<u32>("key", key)?;
    let (counters, keys) = (leading(&counter, 4)?, leading(&key, 2)?);
    let mut shape = common_shape(&[("counter", counters), ("key", keys)])?;
    let places = indices(counters, &shape).zip(indices(keys, &shape));
    let places: Vec<_> = places.collect();
    shape.push(4);
    let mut out = Output::<u32>::new(py, &shape)?;
    let (to, _) = out.as_mut_slice().as_chunks_mut::<4>();
    let (counters, _) = counter.as_slice().as_chunks::<4>();
    let (keys, _) = key.as_slice().as_chunks::<2>();
    detach_if_large(py, to.len(), || {
        for (slot, (counter, key)) in to.iter_mut().zip(places) {
            *slot = philox::philox4x32_10(counters[counter], keys[key]);
        }
        Ok(())
    })
    .map_err(value_error)?;
    out.finish()
}

/// All axes but the last, which must have this length.
fn leading<'a>(words: &'a Array<'_, u32>, length: usize) -> PyResult<&'a [usize]> {
    match words.shape().split_last() {
        Some((_, last)) if last == length => Ok(&words.shape()[..words.shape().len() - 1]),
        _ => Err(PyValueError::new_err(format!(
            "`{}` has shape {}, must be (..., {length})",
            words.name(),
            shown(words.shape())
        ))),
    }
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/uniforms"))]
#[pyfunction]
pub(crate) fn uniforms<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = seed)] seed: u64,
    round_: &Bound<'py, PyAny>,
    prompt: &Bound<'py, PyAny>,
    sample: &Bound<'py, PyAny>,
    token: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    drawn(py, [round_, prompt, sample, token], |draws, out| {
        philox::uniforms(seed, draws, out)
    })
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/xtc_coins"))]
#[pyfunction]
pub(crate) fn xtc_coins<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = seed)] seed: u64,
    round_: &Bound<'py, PyAny>,
    prompt: &Bound<'py, PyAny>,
    sample: &Bound<'py, PyAny>,
    token: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    drawn(py, [round_, prompt, sample, token], |draws, out| {
        philox::xtc_coins(seed, draws, out)
    })
}

fn drawn<'py>(
    py: Python<'py>,
    words: [&Bound<'py, PyAny>; 4],
    fill: impl Fn(&Draws<'_>, &mut [f64]) -> rlkernels::Result<()> + Send + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let [round, prompt, sample, token] = words;
    let round = Word::extract("round_", round)?;
    let prompt = Word::extract("prompt", prompt)?;
    let sample = Word::extract("sample", sample)?;
    let token = Word::extract("token", token)?;
    let shape = common_shape(&[
        ("round_", round.shape()),
        ("prompt", prompt.shape()),
        ("sample", sample.shape()),
        ("token", token.shape()),
    ])?;
    let mut out = Output::<f64>::new(py, &shape)?;
    let [round, prompt, sample, token] =
        [round, prompt, sample, token].map(|word| word.broadcast(&shape));
    let draws = Draws {
        round: round.as_slice(),
        prompt: prompt.as_slice(),
        sample: sample.as_slice(),
        token: token.as_slice(),
    };
    let to = out.as_mut_slice();
    detach_if_large(py, to.len(), || fill(&draws, to)).map_err(value_error)?;
    out.finish()
}

/// One word of the counter: for all draws, or for each.
enum Word<'py> {
    One([i64; 1]),
    Many(Array<'py, i64>),
    Expanded(Vec<i64>),
}

impl<'py> Word<'py> {
    fn extract(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if value.cast::<PyInt>().is_ok() {
            return scalars::whole(name, value).map(|word| Self::One([word]));
        }
        match value.extract() {
            Ok(word) => Ok(Self::One([word])), // NumPy's integers, and arrays without dimensions
            Err(_) => integers(name, value).map(Self::Many),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Many(array) => array.shape(),
            Self::One(_) | Self::Expanded(_) => &[],
        }
    }

    /// One word, or one for each element of the shape.
    fn broadcast(self, common: &[usize]) -> Self {
        match self {
            Self::Many(array) if array.as_slice().len() != 1 && array.shape()[..] != *common => {
                let words = array.as_slice();
                Self::Expanded(indices(array.shape(), common).map(|at| words[at]).collect())
            }
            fits => fits,
        }
    }

    fn as_slice(&self) -> &[i64] {
        match self {
            Self::One(word) => word,
            Self::Many(array) => array.as_slice(),
            Self::Expanded(words) => words,
        }
    }
}

/// The key of Philox: an integer of 64 bits without a sign.
fn seed(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            PyValueError::new_err("`seed` is out of range, must be in [0, 2**64)")
        } else {
            let kind = value.get_type();
            PyTypeError::new_err(format!("`seed` is of type {kind}, must be an integer"))
        }
    })
}
