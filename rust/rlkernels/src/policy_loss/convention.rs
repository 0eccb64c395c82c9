//! The algorithms by name, their parameters, and which of them each algorithm reads.

use crate::choice::choice;
use crate::kl::{Estimator, KlRatio};
use crate::{Error, Float, Result};

choice! {
    /// The policy losses of docs/definitions.md, "The eleven losses", by their names there.
    pub enum Algorithm: "algorithm" {
        /// Token ratio, clipped; mean over rows of the mean over a row (arXiv 2402.03300, eq. 3).
        Grpo = "grpo",
        /// Token ratio, clipped; mean over tokens, whose denominator [`DapoDenominator`] names (arXiv 2503.14476, eq. 8).
        Dapo = "dapo",
        /// Token ratio, clipped; mean over micro-batches of the mean over their tokens (TRL's `bnpo`).
        BnpoTrl = "bnpo-trl",
        /// Token ratio, clipped; the sum over tokens divided by rows times a constant (arXiv 2503.20783, section 3.2).
        DrGrpo = "dr_grpo",
        /// The row's mean ratio, clipped; mean over rows (arXiv 2507.18071, eq. 5).
        Gspo = "gspo",
        /// The value of GSPO with the gradient of each token's own log-probability (arXiv 2507.18071, eq. 13).
        GspoToken = "gspo-token",
        /// The row's product of ratios, not clipped; mean over rows (arXiv 2402.14740).
        Rloo = "rloo",
        /// The token's ratio truncated and held constant, times the log-probability (arXiv 2506.13585, eqs. 4 and 5).
        Cispo = "cispo",
        /// The token's ratio through a sigmoid gate; mean over rows of the mean over a row (arXiv 2511.20347).
        Sapo = "sapo",
        /// The row's mean ratio of differences clipped in log space; mean over rows (arXiv 2507.20673, eq. 4).
        Gmpo = "gmpo",
        /// As GSPO, each row weighted by its number of tokens (arXiv 2602.05261).
        Luspo = "luspo",
    }
}

impl Algorithm {
    /// Whether every row has one advantage and one weight: its ratio is one of the whole row.
    #[must_use]
    pub const fn is_by_row(self) -> bool {
        matches!(self, Self::Gspo | Self::Rloo | Self::Gmpo | Self::Luspo)
    }

    /// Whether it reads `epsilon_low`.
    pub(super) const fn has_low(self) -> bool {
        self.has_high() && !matches!(self, Self::Cispo)
    }

    /// Whether it reads `epsilon_high`.
    pub(super) const fn has_high(self) -> bool {
        !matches!(self, Self::Rloo | Self::Sapo)
    }

    /// Whether it reads `delta`.
    pub(super) const fn has_delta(self) -> bool {
        self.has_low() && !matches!(self, Self::Gmpo)
    }

    /// Whether it reads `dapo_denominator`.
    pub(super) const fn has_denominator(self) -> bool {
        matches!(self, Self::Dapo | Self::Cispo)
    }
}

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

/// The parameters of a policy loss. What an algorithm does not read must be `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Convention<'a> {
    /// Which loss.
    pub algorithm: Algorithm,
    /// The ratio's lower bound is 1 − ε; of GMPO the log-ratio's is −ε.
    pub epsilon_low: Option<f64>,
    /// The ratio's upper bound is 1 + ε; of GMPO the log-ratio's is ε; of CISPO see [`CispoBound`].
    pub epsilon_high: Option<f64>,
    /// Upper bound of the ratio under a negative advantage, above 1 + `ε_high`; `None` for none.
    pub delta: Option<f64>,
    /// Weight of the KL term, at least 0; 0 for RLOO, whose KL is in the reward.
    pub beta: f64,
    /// The estimator of KL(policy ‖ reference); not read where `beta` is 0.
    pub kl_estimator: Estimator,
    /// What multiplies it; not read where `beta` is 0.
    pub kl_ratio: KlRatio,
    /// Dr. GRPO: `L_max`, the configured constant, in tokens.
    pub max_length: Option<i64>,
    /// bnpo-trl: the rows of each micro-batch, in order.
    pub micro_batches: Option<&'a [i64]>,
    /// DAPO and CISPO: the denominator.
    pub dapo_denominator: Option<DapoDenominator>,
    /// DAPO and CISPO by [`DapoDenominator::Group`]: rows per prompt.
    pub group_size: Option<i64>,
    /// DAPO and CISPO by [`DapoDenominator::Trl`]: the denominator.
    pub tokens_in_step: Option<f64>,
    /// CISPO: what its constant is.
    pub cispo_bound: Option<CispoBound>,
    /// SAPO: τ where the advantage is positive, 1.0 where it is `None`.
    pub sapo_temperature_positive: Option<f64>,
    /// SAPO: τ elsewhere, 1.05 where it is `None`.
    pub sapo_temperature_negative: Option<f64>,
}

impl Convention<'_> {
    /// The algorithm with nothing given but what has a default: no KL.
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

    /// Refuses a parameter that the algorithm does not read: setting it is a mistake.
    pub(super) fn check_unread(&self) -> Result<()> {
        let algorithm = self.algorithm;
        let denominator = self.dapo_denominator;
        let numbers = [
            ("epsilon_low", self.epsilon_low, algorithm.has_low()),
            ("epsilon_high", self.epsilon_high, algorithm.has_high()),
            ("delta", self.delta, algorithm.has_delta()),
            (
                "max_length",
                self.max_length.map(|x| x as f64),
                algorithm == Algorithm::DrGrpo,
            ),
            (
                "group_size",
                self.group_size.map(|x| x as f64),
                denominator == Some(DapoDenominator::Group),
            ),
            (
                "tokens_in_step",
                self.tokens_in_step,
                denominator == Some(DapoDenominator::Trl),
            ),
            (
                "sapo_temperature_positive",
                self.sapo_temperature_positive,
                algorithm == Algorithm::Sapo,
            ),
            (
                "sapo_temperature_negative",
                self.sapo_temperature_negative,
                algorithm == Algorithm::Sapo,
            ),
        ];
        let texts = [
            (
                "micro_batches",
                self.micro_batches.is_some(),
                algorithm == Algorithm::BnpoTrl,
            ),
            (
                "dapo_denominator",
                denominator.is_some(),
                algorithm.has_denominator(),
            ),
            (
                "cispo_bound",
                self.cispo_bound.is_some(),
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

    /// `value` rounded to the data's type: a finite number that is at least 0.
    pub(super) fn not_negative<T: Float>(
        &self,
        argument: &'static str,
        value: Option<f64>,
    ) -> Result<f64> {
        let value = T::narrow(self.given(argument, value)?).widen();
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
        &self,
        argument: &'static str,
        value: Option<f64>,
    ) -> Result<f64> {
        let value = T::narrow(self.given(argument, value)?).widen();
        if value.is_finite() && value > 0.0 {
            return Ok(value);
        }
        Err(Error::OutOfRange {
            argument,
            found: value,
            wanted: "finite and above 0",
        })
    }

    /// The value, or an error that it must be given.
    pub(super) fn given<V>(&self, argument: &'static str, value: Option<V>) -> Result<V> {
        value.ok_or(Error::MissingFor {
            argument,
            algorithm: self.algorithm.name(),
        })
    }
}
