//! Kernels of LLM reinforcement-learning post-training, in plain Rust and without Python.
//!
//! Every kernel reads slices of `f32` or `f64`, writes into a slice that the caller owns and reports a wrong input as an
//! [`Error`] with the offending value in its message. `f32` data is computed in `f64` and rounded once at the end;
//! `f64` data uses error-free differences and compensated sums. The definitions, with their sources, stand at each
//! function.
#![deny(unsafe_code)] // `isa` alone allows it, for intrinsics, with a SAFETY note at every block
#![deny(missing_docs)]

pub mod advantages;
pub mod build_info;
mod choice;
mod chunks;
pub mod conventions;
mod data;
mod double;
mod error;
mod float;
mod half;
pub mod isa;
pub mod kl;
pub mod logsoftmax;
pub mod math;
pub mod packing;
pub mod parallel;
pub mod philox;
pub mod policy_loss;
pub mod ratio;
pub mod rows;
pub mod sampling;

pub use error::{Error, Result};
pub use float::Float;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
