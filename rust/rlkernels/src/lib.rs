//! Kernels of LLM reinforcement-learning post-training, in plain Rust and without Python.
//!
//! Every kernel reads slices of `f32` or `f64`, writes into a slice that the caller owns and reports a wrong input as an
//! [`Error`] with the offending value in its message. `f32` data is computed in `f64` and rounded once at the end;
//! `f64` data uses error-free differences and compensated sums. The definitions, with their sources, stand at each
//! function, the conventions in [`conventions`].
//!
//! | module | kernels |
//! |---|---|
//! | [`advantages`] | group advantages, several reward functions, GAE |
//! | [`kl`] | k1, k2 and k3 of tokens and sequences, the full divergence |
//! | [`ratio`] | importance ratios, off-policy weights, statistics |
//! | [`policy_loss`] | GRPO and its relatives, with their gradients |
//! | [`logsoftmax`] | log-probabilities of tokens and entropies from logits, and the way back |
//! | [`sampling`], [`philox`] | filters and draws that do not depend on the batch |
//! | [`packing`] | sequences into bins |
//!
//! [`rows`] says which slots of an array are tokens, [`isa`] and [`parallel`] choose instructions and threads: no bit of a
//! result depends on either.
//!
//! ```
//! use rlkernels::advantages::{Convention, group_advantages};
//!
//! let mut advantages = [0.0; 4];
//! group_advantages(&[1.0, 0.0, 0.0, 1.0], 4, &Convention::default(), &mut advantages)?;
//! assert!((advantages[0] - 0.5 / (1.0f64 / 3.0).sqrt()).abs() < 1e-3);
//! # Ok::<(), rlkernels::Error>(())
//! ```
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
