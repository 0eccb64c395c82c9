//! Python bindings of `rlkernels`: extract, release the GIL where the work is worth it, call the core, wrap.
#![deny(missing_docs)]

use pyo3::prelude::*;

mod advantages;
mod broadcast;
mod build_info;
mod detach;
mod errors;
mod input;
mod kl;
mod logsoftmax;
mod packing;
mod philox;
mod policy_loss;
mod ratio;
mod sampling;

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/module"))]
#[pymodule(gil_used = true)] // kernels read shared arrays without locks of their own
mod rlkernels {
    #[pymodule_export]
    use super::advantages::{gae, group_advantages, normalise_then_sum};
    #[pymodule_export]
    use super::build_info::{available_isas, build_info, set_threads, use_isa};
    #[pymodule_export]
    use super::kl::{full_kl, token_kl};
    #[pymodule_export]
    use super::logsoftmax::{selective_log_softmax, selective_log_softmax_backward};
    #[pymodule_export]
    use super::packing::pack_sequences;
    #[pymodule_export]
    use super::philox::{philox4x32_10, uniforms, xtc_coins};
    #[pymodule_export]
    use super::policy_loss::{PolicyLoss, policy_loss};
    #[pymodule_export]
    use super::ratio::{importance_ratio, importance_weights, ratio_statistics};
    #[pymodule_export]
    use super::sampling::{filtered_logprobs, sample_tokens};

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn prepare(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", ::rlkernels::build_info::VERSION)?;
        super::errors::remember_panics();
        super::build_info::check_environment()
    }
}
