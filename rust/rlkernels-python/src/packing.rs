//! `pack_sequences` for Python.

use pyo3::prelude::*;
use rlkernels::packing::Plan;

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{Output, arguments, integers};

arguments! { whole max_length, text strategy, text over_long }

/// Indices in the order of their bins, the offsets at which the bins start, and the efficiency.
type Packed<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, f64);

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/pack_sequences"))]
#[pyfunction]
#[pyo3(signature = (lengths, max_length, *, strategy="first-fit-decreasing", over_long="error"))]
pub(crate) fn pack_sequences<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_length)] max_length: i64,
    #[pyo3(from_py_with = strategy)] strategy: &str,
    #[pyo3(from_py_with = over_long)] over_long: &str,
) -> PyResult<Packed<'py>> {
    let strategy = strategy.parse().map_err(value_error)?;
    let over_long = over_long.parse().map_err(value_error)?;
    let lengths = integers("lengths", lengths)?.one_dimensional()?;
    let lengths = lengths.as_slice();
    let plan = detach_if_large(py, lengths.len(), || {
        Plan::new(lengths, max_length, strategy, over_long)
    })
    .map_err(value_error)?;
    let mut indices = Output::new(py, &[plan.sequences()])?;
    let mut offsets = Output::new(py, &[plan.bins() + 1])?;
    let (to_indices, to_offsets) = (indices.as_mut_slice(), offsets.as_mut_slice());
    detach_if_large(py, lengths.len(), || {
        plan.write(to_indices, to_offsets);
        Ok(())
    })
    .map_err(value_error)?;
    Ok((indices.finish()?, offsets.finish()?, plan.efficiency()))
}
