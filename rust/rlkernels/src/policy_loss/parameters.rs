//! The choices and numbers that policy losses take, and the checks of one number.

use crate::choice::choice;
use crate::{Error, Float, Result};

choice! {
    /// What the sum over the tokens is divided by in DAPO and CISPO.
    pub enum DapoDenominator: "dapo_denominator" {
        /// All tokens of the step.
        Global = "global",
        /// The tokens of each prompt's rows; then the mean over prompts.
        Group = "group",
        /// A number that is given: the tokens of the generation batch times this window's share of it.
        Trl = "trl",
    }
}

choice! {
    /// What CISPO's constant `c` is.
    pub enum CispoBound: "cispo_bound" {
        /// c = 1 + `ε_high` (MiniMax-M1).
        Relative = "relative",
        /// c = `ε_high` (TRL).
        Absolute = "absolute",
    }
}

/// `value` rounded to the data's type: a finite number that is at least 0.
pub(super) fn not_negative<T: Float>(
    algorithm: &'static str,
    argument: &'static str,
    value: Option<f64>,
) -> Result<f64> {
    let value = T::narrow(given(algorithm, argument, value)?).widen();
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(Error::OutOfRange {
        argument,
        found: value,
        wanted: "finite and at least 0",
    })
}

/// `value` rounded to the data's type: a finite number above 0.
pub(super) fn positive<T: Float>(
    algorithm: &'static str,
    argument: &'static str,
    value: Option<f64>,
) -> Result<f64> {
    let value = T::narrow(given(algorithm, argument, value)?).widen();
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(Error::OutOfRange {
        argument,
        found: value,
        wanted: "finite and above 0",
    })
}

/// The value, or an error that the algorithm needs it.
pub(super) fn given<V>(
    algorithm: &'static str,
    argument: &'static str,
    value: Option<V>,
) -> Result<V> {
    value.ok_or(Error::MissingFor {
        argument,
        algorithm,
    })
}
