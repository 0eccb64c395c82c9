//! `pack_sequences` for Python.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rlkernels::packing::{self as core, OverLong};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{arguments, integers};

/// Elements below which copying costs less than an owner for the vector.
const SHORT: usize = 1024;

arguments! { whole max_length, text strategy, text over_long }

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/pack_sequences"))]
#[pyfunction]
#[pyo3(signature = (lengths, max_length, *, strategy="first-fit-decreasing", over_long="error"))]
pub(crate) fn pack_sequences<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_length)] max_length: i64,
    #[pyo3(from_py_with = strategy)] strategy: &str,
    #[pyo3(from_py_with = over_long)] over_long: &str,
) -> PyResult<Bound<'py, PyTuple>> {
    let strategy = strategy.parse().map_err(value_error)?;
    let over_long = over_long.parse().map_err(value_error)?;
    let lengths = integers("lengths", lengths)?.one_dimensional()?;
    let lengths = lengths.as_slice();
    let given = |values: Vec<i64>| match values.len() {
        ..SHORT => PyArray1::from_slice(py, &values),
        _ => PyArray1::from_vec(py, values),
    };
    let packing = detach_if_large(py, lengths.len(), || {
        core::pack_sequences(lengths, max_length, strategy, over_long)
    })
    .map_err(value_error)?;
    let bins = (
        given(packing.indices),
        given(packing.offsets),
        packing.efficiency,
    );
    if over_long != OverLong::Split {
        return bins.into_pyobject(py);
    }
    let (indices, offsets, efficiency) = bins;
    (
        indices,
        offsets,
        efficiency,
        given(packing.starts),
        given(packing.sizes),
    )
        .into_pyobject(py)
}
