//! Python bindings of `rlkernels`: extract, release the GIL where the work is worth it, call the core, wrap.
#![deny(missing_docs)]

use pyo3::prelude::*;

mod advantages;
mod build_info;
mod detach;
mod errors;
mod input;
mod kl;
mod packing;

/// Kernels of LLM reinforcement-learning post-training, written in Rust.
///
/// Arrays are read in place where they are C-contiguous, aligned and of native byte order, and copied otherwise. Large
/// inputs are worked on without the GIL: another thread that writes to them meanwhile makes the result meaningless.
#[pymodule]
mod rlkernels {
    #[pymodule_export]
    use super::advantages::{group_advantages, normalise_then_sum};
    #[pymodule_export]
    use super::build_info::{available_isas, build_info, set_threads, use_isa};
    #[pymodule_export]
    use super::kl::{full_kl, token_kl};
    #[pymodule_export]
    use super::packing::pack_sequences;

    use super::{Bound, PyModule, PyResult};

    #[pymodule_init]
    fn check_environment(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::build_info::check_environment()
    }
}
