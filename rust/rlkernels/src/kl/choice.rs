//! The estimators, ratios and reductions, by name.

use crate::choice::choice;

choice! {
    /// One of Schulman's three estimators.
    pub enum Estimator: "estimator" {
        /// −d: unbiased, high variance, may be negative.
        K1 = "k1",
        /// d²/2: low variance, biased, never negative.
        K2 = "k2",
        /// exp(d) − 1 − d: unbiased, low variance, never negative.
        K3 = "k3",
    }
}

choice! {
    /// What multiplies an estimate, so that tokens of an older policy stand for the current one.
    pub enum KlRatio: "kl_ratio" {
        /// 1
        None = "none",
        /// exp(policy − old) of the token.
        Token = "token",
        /// exp(mean of policy − old over the tokens of the sequence).
        Sequence = "sequence",
    }
}

/// How the tokens of a sequence become one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Σ over the tokens of the sequence.
    Sum,
    /// Σ over the tokens, divided by their number; 0 for a sequence without tokens.
    Mean,
}

/// Runs a kernel that is generic over the estimator's number.
macro_rules! by_estimator {
    ($estimator:expr, $kernel:ident { $($field:ident),* }) => {
        match $estimator {
            $crate::kl::Estimator::K1 => $crate::isa::dispatch($kernel::<_, 1> { $($field),* }),
            $crate::kl::Estimator::K2 => $crate::isa::dispatch($kernel::<_, 2> { $($field),* }),
            $crate::kl::Estimator::K3 => $crate::isa::dispatch($kernel::<_, 3> { $($field),* }),
        }
    };
}
pub(crate) use by_estimator;
