//! `build_info` for Python.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlkernels::build_info as core;
use rlkernels::isa::{self, Isa};
use rlkernels::parallel;

use crate::errors::value_error;
use crate::input::arguments;

arguments! { text isa, size threads }

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/build_info"))]
#[pyfunction]
pub(crate) fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("version", core::VERSION)?;
    info.set_item("profile", core::PROFILE)?;
    info.set_item("target", env!("RLKERNELS_TARGET"))?;
    info.set_item("rustc", env!("RLKERNELS_RUSTC"))?;
    info.set_item("features", core::features())?;
    info.set_item("isa", isa::current().name())?;
    info.set_item("threads", rlkernels::parallel::threads())?;
    info.set_item("cpus", core::cpus())?;
    Ok(info)
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/available_isas"))]
#[pyfunction]
pub(crate) fn available_isas() -> Vec<&'static str> {
    isa::available().into_iter().map(Isa::name).collect()
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/use_isa"))]
#[pyfunction]
pub(crate) fn use_isa(#[pyo3(from_py_with = isa)] isa: &str) -> PyResult<&'static str> {
    let isa: Isa = isa.parse().map_err(value_error)?;
    isa::choose(isa).map(Isa::name).map_err(value_error)
}

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/set_threads"))]
#[pyfunction]
pub(crate) fn set_threads(#[pyo3(from_py_with = threads)] threads: usize) -> PyResult<usize> {
    parallel::set_threads(threads).map_err(value_error)
}

/// What the environment asks for and the machine cannot give is an error at import, not a surprise later.
pub(crate) fn check_environment() -> PyResult<()> {
    isa::from_environment()
        .map(|_| ())
        .and_then(|()| parallel::from_environment().map(|_| ()))
        .map_err(|error| {
            PyImportError::new_err(format!(
                "rlkernels cannot follow its environment ({} or {}): {error}",
                isa::VARIABLE,
                parallel::VARIABLE
            ))
        })
}
