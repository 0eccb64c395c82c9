//! Conventions: the defaults, and the refusal of parameters that an algorithm does not read.

use super::algorithm::{Algorithm, Convention};
use super::facts::Aggregation;
use super::parameters::{CispoBound, DapoDenominator};
use crate::kl::{Estimator, KlRatio};
use crate::{Error, Result};

impl Convention<'_> {
    /// The algorithm with nothing given but what has a default: no KL, the clip widths of [`Convention`].
    #[must_use]
    pub const fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            epsilon_low: None,
            epsilon_high: None,
            delta: None,
            beta: 0.0,
            kl_estimator: Estimator::K3,
            kl_ratio: KlRatio::None,
            max_length: None,
            micro_batches: None,
            dapo_denominator: None,
            group_size: None,
            tokens_in_step: None,
            cispo_bound: None,
            sapo_temperature_positive: None,
            sapo_temperature_negative: None,
        }
    }
}

impl Convention<'_> {
    /// `epsilon_low` and `epsilon_high`, with their defaults.
    pub(super) fn widths(&self) -> [Option<f64>; 2] {
        let [low, high] = self.algorithm.widths();
        let is_cap = self.cispo_bound == Some(CispoBound::Absolute); // no width: 0.28 would scale down every token
        let high = self.epsilon_low.or(if is_cap { None } else { Some(high) });
        [self.epsilon_low.or(Some(low)), self.epsilon_high.or(high)]
    }
}

/// Refuses a parameter that the algorithm does not read: setting it is a mistake.
pub(super) fn check_unread(convention: &Convention<'_>) -> Result<()> {
    let algorithm = convention.algorithm;
    let facts = algorithm.facts();
    let [has_low, has_high, has_delta] = facts.bounds;
    let denominator = convention.dapo_denominator;
    let numbers = [
        ("epsilon_low", convention.epsilon_low, has_low),
        ("epsilon_high", convention.epsilon_high, has_high),
        ("delta", convention.delta, has_delta),
        (
            "max_length",
            convention.max_length.map(|x| x as f64),
            facts.aggregation == Aggregation::Constant,
        ),
        (
            "group_size",
            convention.group_size.map(|x| x as f64),
            denominator == Some(DapoDenominator::Group),
        ),
        (
            "tokens_in_step",
            convention.tokens_in_step,
            denominator == Some(DapoDenominator::Trl),
        ),
        (
            "sapo_temperature_positive",
            convention.sapo_temperature_positive,
            algorithm == Algorithm::Sapo,
        ),
        (
            "sapo_temperature_negative",
            convention.sapo_temperature_negative,
            algorithm == Algorithm::Sapo,
        ),
    ];
    let texts = [
        (
            "micro_batches",
            convention.micro_batches.is_some(),
            facts.aggregation == Aggregation::MicroBatches,
        ),
        (
            "dapo_denominator",
            denominator.is_some(),
            facts.aggregation == Aggregation::Tokens,
        ),
        (
            "cispo_bound",
            convention.cispo_bound.is_some(),
            algorithm == Algorithm::Cispo,
        ),
    ];
    let unread = |argument, found| {
        Err(Error::Unread {
            argument,
            found,
            algorithm: algorithm.name(),
        })
    };
    for (argument, given, is_read) in numbers {
        if let (Some(value), false) = (given, is_read) {
            return unread(argument, value.to_string());
        }
    }
    for (argument, is_given, is_read) in texts {
        if is_given && !is_read {
            return unread(argument, "given".into());
        }
    }
    Ok(())
}
