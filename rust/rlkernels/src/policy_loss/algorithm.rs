//! The algorithms: names, parameters, aggregation, and the surrogates that are not of [`super::clip`].

use super::clip::{Bounds, Clip, Whole};
use super::facts::{Aggregation, Facts, ROW, TOKEN};
use super::metrics::Tally;
use super::parameters::{CispoBound, DapoDenominator, given, not_negative, positive};
use super::surrogate::{Call, Effect, RowRatio, Surrogate, Tokens, minus_times};
use crate::choice::{choice, setters};
use crate::data::Data;
use crate::double::Double;
use crate::isa::{Lanes, Simd};
use crate::kl::{Estimator, KlRatio};
use crate::{Float, Result};

choice! {
    /// The policy losses of docs/definitions.md, "Policy losses by name", by their names there.
    pub enum Algorithm: "algorithm" {
        /// Token ratio, clipped; mean over rows of the mean over a row (arXiv 2402.03300, eq. 3).
        Grpo = "grpo",
        /// Token ratio, clipped; mean over tokens, whose denominator [`DapoDenominator`] names (arXiv 2503.14476, eq. 8).
        Dapo = "dapo",
        /// Token ratio, clipped; mean over micro-batches of the mean over their tokens (TRL's `bnpo`).
        BnpoTrl = "bnpo-trl" | "bnpo",
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
        self.facts().by_row
    }

    /// The `epsilon_low` and `epsilon_high` of its paper; TRL's 0.2 where that leaves them open.
    pub(super) const fn widths(self) -> [f64; 2] {
        match self {
            Self::Dapo | Self::Cispo => [0.2, 0.28],
            Self::Gspo | Self::GspoToken | Self::Luspo => [3e-4, 4e-4],
            Self::Gmpo => [0.4, 0.4],
            _ => [0.2, 0.2],
        }
    }

    /// What it is besides its surrogate.
    pub(super) const fn facts(self) -> Facts {
        match self {
            Self::Grpo | Self::GspoToken => TOKEN,
            Self::Dapo => TOKEN.weighed(Aggregation::Tokens),
            Self::BnpoTrl => TOKEN.weighed(Aggregation::MicroBatches),
            Self::DrGrpo => TOKEN.weighed(Aggregation::Constant),
            Self::Gspo => ROW,
            Self::Rloo => ROW.bounded([false; 3]).without_kl(),
            Self::Cispo => TOKEN.truncated().weighed(Aggregation::Tokens),
            Self::Sapo => TOKEN.bounded([false; 3]),
            Self::Gmpo => ROW.bounded([true, true, false]),
            Self::Luspo => ROW.weighed(Aggregation::RowSum),
        }
    }

    /// Runs a call with the algorithm's surrogate.
    pub(super) fn run<T: Float>(
        self,
        call: impl Call<Output = Tally>,
        convention: &Convention<'_>,
    ) -> Result<Tally> {
        let name = self.name();
        let bounds = || {
            let [low, high] = convention.widths();
            Bounds::new::<T>(name, low, high, convention.delta)
        };
        Ok(match self {
            Self::Grpo | Self::Dapo | Self::BnpoTrl | Self::DrGrpo => call.run(Clip(bounds()?)),
            Self::Gspo | Self::GspoToken | Self::Luspo => call.run(Whole::mean(bounds()?)),
            Self::Rloo => call.run(Whole::product()),
            Self::Cispo => call.run(Truncated::new::<T>(convention)?),
            Self::Sapo => call.run(Soft::new::<T>(convention)?),
            Self::Gmpo => call.run(Geometric::new::<T>(convention)?),
        })
    }
}

/// An algorithm with its parameters. What an algorithm does not read must be `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Convention<'a> {
    /// Which loss.
    pub algorithm: Algorithm,
    /// The ratio's lower bound is 1 − ε; of GMPO the log-ratio's is −ε. `None`: 0.2, of GSPO and LUSPO 3e-4, of GMPO 0.4.
    pub epsilon_low: Option<f64>,
    /// The ratio's upper bound is 1 + ε; of GMPO the log-ratio's is ε; of CISPO see [`CispoBound`].
    /// `None`: `epsilon_low` where that is given; else 0.2, of DAPO 0.28, of GSPO and LUSPO 4e-4, of GMPO 0.4, of CISPO
    /// 0.28 with [`CispoBound::Relative`] and nothing with the other.
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

setters! {
    Convention<'_> {
        with_epsilon_low: epsilon_low = f64,
        with_epsilon_high: epsilon_high = f64,
        with_delta: delta = f64,
        with_beta: beta = f64,
        with_kl_estimator: kl_estimator = Estimator,
        with_kl_ratio: kl_ratio = KlRatio,
        with_max_length: max_length = i64,
        with_dapo_denominator: dapo_denominator = DapoDenominator,
        with_group_size: group_size = i64,
        with_tokens_in_step: tokens_in_step = f64,
        with_cispo_bound: cispo_bound = CispoBound,
        with_sapo_temperature_positive: sapo_temperature_positive = f64,
        with_sapo_temperature_negative: sapo_temperature_negative = f64,
    }
}

impl<'a> Convention<'a> {
    /// With other `micro_batches`.
    #[must_use]
    pub fn with_micro_batches(mut self, micro_batches: &'a [i64]) -> Self {
        self.micro_batches = Some(micro_batches);
        self
    }
}

/// −stop(min(r, c)) A · policy: the truncated ratio is a constant, so every token keeps its gradient.
#[derive(Clone, Copy)]
pub(super) struct Truncated {
    cap: f64,
}

impl Truncated {
    pub(super) fn new<T: Float>(convention: &Convention<'_>) -> Result<Self> {
        let bound = given(
            convention.algorithm.name(),
            "cispo_bound",
            convention.cispo_bound,
        )?;
        let width = positive::<T>(
            convention.algorithm.name(),
            "epsilon_high",
            convention.widths()[1],
        )?;
        let cap = match bound {
            CispoBound::Relative => 1.0 + width,
            CispoBound::Absolute => width,
        };
        Ok(Self { cap })
    }
}

impl Surrogate for Truncated {
    #[inline(always)]
    fn effect<T: Data, S: Simd>(self, s: S, tokens: Tokens<S>) -> Effect<S> {
        let (ratio, cap) = (T::exp(s, tokens.difference), s.f64(self.cap));
        let slope = minus_times(s, ratio.min(cap), tokens.constant);
        let above = cap.lt(ratio);
        Effect {
            value: slope * tokens.policy,
            slope,
            ratio,
            below: s.mask64(0),
            above,
            above_delta: s.mask64(0),
        }
    }
}

/// −(4/τ) σ(τ (r − 1)) A with a τ of its own for A > 0; the slope is −4 σ (1 − σ) r A.
#[derive(Clone, Copy)]
pub(super) struct Soft {
    positive: f64,
    other: f64,
}

impl Soft {
    pub(super) fn new<T: Float>(convention: &Convention<'_>) -> Result<Self> {
        let (up, down) = (
            convention.sapo_temperature_positive.unwrap_or(1.0),
            convention.sapo_temperature_negative.unwrap_or(1.05), // SAPO, section 4
        );
        Ok(Self {
            positive: positive::<T>(
                convention.algorithm.name(),
                "sapo_temperature_positive",
                Some(up),
            )?,
            other: positive::<T>(
                convention.algorithm.name(),
                "sapo_temperature_negative",
                Some(down),
            )?,
        })
    }
}

impl Surrogate for Soft {
    #[inline(always)]
    fn effect<T: Data, S: Simd>(self, s: S, tokens: Tokens<S>) -> Effect<S> {
        let (zero, one) = (s.f64(0.0), s.f64(1.0));
        let gains = zero.lt(tokens.advantage);
        let tau = S::F64::select(gains, s.f64(self.positive), s.f64(self.other));
        let growth = T::growth(s, tokens.difference);
        let x = tau * growth.expm1;
        let small = T::exp(
            s,
            Double {
                high: -x.abs(),
                low: zero,
            },
        );
        let big = one / (one + small);
        let small = small * big;
        let is_open = zero.le(x);
        let open = S::F64::select(is_open, big, small);
        let closed = S::F64::select(is_open, small, big);
        // σ(1 − σ) falls faster than r grows
        let gate = S::F64::select(
            closed.eq(zero),
            zero,
            s.f64(4.0) * (big * small) * growth.exp,
        );
        Effect {
            value: minus_times(s, s.f64(4.0) / tau * open, tokens.constant),
            slope: minus_times(s, gate, tokens.constant),
            ratio: growth.exp,
            below: s.mask64(0),
            above: s.mask64(0),
            above_delta: s.mask64(0),
        }
    }
}

/// −r A, r = exp of the row's mean of q, q = min(D, high) where A > 0, else max(D, low): bounds in log space.
///
/// A token outside keeps the row's ratio and loses its own gradient.
#[derive(Clone, Copy)]
pub(super) struct Geometric {
    low: f64,
    high: f64,
    ratio: f64,
}

impl Geometric {
    pub(super) fn new<T: Float>(convention: &Convention<'_>) -> Result<Self> {
        let [low, high] = convention.widths();
        let name = convention.algorithm.name();
        Ok(Self {
            low: -not_negative::<T>(name, "epsilon_low", low)?,
            high: not_negative::<T>(name, "epsilon_high", high)?,
            ratio: 1.0,
        })
    }

    /// The bound that the sign of the advantage names, and whether the difference is strictly outside it.
    #[inline(always)]
    fn bound<S: Simd>(self, s: S, tokens: Tokens<S>) -> (S::F64, S::M64) {
        let d = tokens.difference.high;
        let (low, high) = (s.f64(self.low), s.f64(self.high));
        let gains = s.f64(0.0).lt(tokens.advantage);
        let outside = (gains & high.lt(d)) | (!gains & d.lt(low));
        (S::F64::select(gains, high, low), outside)
    }
}

impl Surrogate for Geometric {
    fn row_ratio(self) -> RowRatio {
        RowRatio::ClippedMean
    }

    fn of_row(self, ratio: f64, _: usize) -> Self {
        Self { ratio, ..self }
    }

    #[inline(always)]
    fn clipped_difference<S: Simd>(self, s: S, tokens: Tokens<S>) -> Double<S::F64> {
        let (bound, outside) = self.bound(s, tokens);
        Double {
            high: S::F64::select(outside, bound, tokens.difference.high),
            low: S::F64::select(outside, s.f64(0.0), tokens.difference.low),
        }
    }

    #[inline(always)]
    fn effect<T: Data, S: Simd>(self, s: S, tokens: Tokens<S>) -> Effect<S> {
        let ratio = s.f64(self.ratio);
        let (_, outside) = self.bound(s, tokens);
        let value = minus_times(s, ratio, tokens.constant);
        let d = tokens.difference.high;
        Effect {
            value,
            slope: S::F64::select(outside, s.f64(0.0), value),
            ratio,
            below: d.lt(s.f64(self.low)),
            above: s.f64(self.high).lt(d),
            above_delta: s.mask64(0),
        }
    }
}
