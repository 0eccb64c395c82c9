//! `build_info` for Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlkernels::build_info as core;

/// Facts about this build and this machine; the keys are documented in the type stub.
#[pyfunction]
pub(crate) fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("version", core::VERSION)?;
    info.set_item("profile", core::PROFILE)?;
    info.set_item("target", env!("RLKERNELS_TARGET"))?;
    info.set_item("rustc", env!("RLKERNELS_RUSTC"))?;
    info.set_item("features", core::features())?;
    info.set_item("threads", core::THREADS)?;
    info.set_item("cpus", core::cpus())?;
    Ok(info)
}
