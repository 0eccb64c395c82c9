//! The kernels' tests, in one binary: what they share is compiled once, and linked once on every target.

mod advantages;
mod advantages_bound;
mod advantages_variants;
mod formats;
mod kl;
mod kl_f32;
mod kl_variants;
mod logsoftmax;
mod logsoftmax_peaked;
mod math;
mod naive;
mod packing;
mod policy_loss;
mod ratio;
mod sampling;
mod sampling_inputs;
mod steps;
mod variants;
