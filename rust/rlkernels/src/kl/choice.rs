//! The estimators, ratios and reductions, by name.

use std::str::FromStr;

use crate::{Error, Result};

/// One of Schulman's three estimators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// −d: unbiased, high variance, may be negative.
    K1,
    /// d²/2: low variance, biased, never negative.
    K2,
    /// exp(d) − 1 − d: unbiased, low variance, never negative.
    K3,
}

/// What multiplies an estimate, so that tokens of an older policy stand for the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KlRatio {
    /// 1
    None,
    /// exp(policy − old) of the token.
    Token,
    /// exp(mean of policy − old over the tokens of the sequence).
    Sequence,
}

/// How the tokens of a sequence become one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Σ over the tokens of the sequence.
    Sum,
    /// Σ over the tokens, divided by their number; 0 for a sequence without tokens.
    Mean,
}

impl FromStr for Estimator {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "k1" => Ok(Self::K1),
            "k2" => Ok(Self::K2),
            "k3" => Ok(Self::K3),
            _ => Err(Error::UnknownChoice {
                argument: "estimator",
                found: name.into(),
                legal: "\"k1\", \"k2\", \"k3\"",
            }),
        }
    }
}

impl FromStr for KlRatio {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "token" => Ok(Self::Token),
            "sequence" => Ok(Self::Sequence),
            _ => Err(Error::UnknownChoice {
                argument: "kl_ratio",
                found: name.into(),
                legal: "\"none\", \"token\", \"sequence\"",
            }),
        }
    }
}
