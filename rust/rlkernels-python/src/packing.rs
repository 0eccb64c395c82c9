//! `pack_sequences` for Python.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{integers, whole};

/// Indices in the order of their bins, and the offsets at which the bins start.
type Packed<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// First-fit-decreasing packing; documented in the type stub.
#[pyfunction]
pub(crate) fn pack_sequences<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    max_length: &Bound<'py, PyAny>,
) -> PyResult<Packed<'py>> {
    let max_length = whole("max_length", max_length)?;
    let lengths = integers("lengths", lengths)?.one_dimensional()?;
    let lengths = lengths.as_slice();
    let packing = detach_if_large(py, lengths.len(), || {
        rlkernels::packing::pack_sequences(lengths, max_length)
    })
    .map_err(value_error)?;
    Ok((
        packing.indices.into_pyarray(py),
        packing.offsets.into_pyarray(py),
    ))
}
