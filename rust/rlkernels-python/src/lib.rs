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
mod policy_loss;
mod ratio;

/// Kernels of LLM reinforcement-learning post-training, written in Rust.
///
/// Arrays are read in place where they are C-contiguous, aligned and of native byte order, and copied otherwise. Large
/// inputs are worked on without the GIL: another thread that writes to them meanwhile makes the result meaningless.
#[pymodule]
mod rlkernels {
    #[pymodule_export]
    use super::advantages::group_advantages;
    #[pymodule_export]
    use super::build_info::{available_isas, build_info, set_threads, use_isa};
    #[pymodule_export]
    use super::kl::token_kl;
    #[pymodule_export]
    use super::packing::pack_sequences;
    #[pymodule_export]
    use super::policy_loss::{PolicyLoss, policy_loss};
    #[pymodule_export]
    use super::ratio::{importance_ratio, importance_weights, ratio_statistics};

    use super::{Bound, PyModule, PyResult};

    #[pymodule_init]
    fn check_environment(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::build_info::check_environment()
    }
}
