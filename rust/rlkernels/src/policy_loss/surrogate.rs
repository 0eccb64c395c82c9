//! The losses of tokens without the KL term: clipped, truncated, softly gated or unclipped ratios times advantages.

use super::convention::{Algorithm, CispoBound, Convention};
use crate::data::Data;
use crate::double::Double;
use crate::isa::{Lanes, Simd};
use crate::{Error, Float, Result};

/// The values of eight tokens.
#[derive(Clone, Copy)]
pub(super) struct Tokens<S: Simd> {
    pub(super) policy: S::F64,
    /// policy − old.
    pub(super) difference: Double<S::F64>,
    pub(super) advantage: S::F64,
    /// Advantage times weight; 0 in lanes that are no tokens.
    pub(super) constant: S::F64,
}

/// Loss, slope and bounds of eight tokens, before the row's weight.
#[derive(Clone, Copy)]
pub(super) struct Effect<S: Simd> {
    /// The loss, to be minimised.
    pub(super) value: S::F64,
    /// The derivative of the row's sum of values by the token's log-probability.
    pub(super) slope: S::F64,
    /// The ratio, for the metrics.
    pub(super) ratio: S::F64,
    /// The ratio is below the lower bound, whatever the advantage.
    pub(super) below: S::M64,
    /// The ratio is above the upper bound, whatever the advantage.
    pub(super) above: S::M64,
    /// The ratio is above δ.
    pub(super) above_delta: S::M64,
}

/// Which sum over the row's tokens the surrogate needs first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowRatio {
    /// None: its ratios are those of tokens.
    Token,
    /// exp of the sum of the differences.
    Product,
    /// exp of their mean.
    Mean,
    /// exp of the mean of the differences clipped to bounds.
    ClippedMean,
}

/// A surrogate loss; `Copy`, so that each row can have a copy with its own ratio.
pub(super) trait Surrogate: Copy + Send + Sync {
    /// Which sum over the row it needs.
    fn row_ratio(self) -> RowRatio {
        RowRatio::Token
    }
    /// The surrogate of a row of `tokens` tokens, whose ratio is `ratio`.
    fn of_row(self, _ratio: f64, _tokens: usize) -> Self {
        self
    }
    /// The differences that are summed for the row's ratio.
    #[inline(always)]
    fn clipped_difference<S: Simd>(self, _: S, tokens: Tokens<S>) -> Double<S::F64> {
        tokens.difference
    }
    /// Value and slope of eight tokens.
    fn effect<T: Data, S: Simd>(self, s: S, tokens: Tokens<S>) -> Effect<S>;
}

/// −ratio · constant; 0 where the constant is 0, also for an infinite ratio.
#[inline(always)]
fn minus_times<S: Simd>(s: S, ratio: S::F64, constant: S::F64) -> S::F64 {
    let zero = s.f64(0.0);
    S::F64::select(constant.eq(zero), zero, ratio * -constant)
}

/// Bounds of a ratio.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) low: f64,
    pub(super) high: f64,
    /// Upper bound under a negative advantage; +inf for none.
    pub(super) delta: f64,
}

/// No bounds at all.
const NONE: Bounds = Bounds {
    low: f64::NEG_INFINITY,
    high: f64::INFINITY,
    delta: f64::INFINITY,
};

impl Bounds {
    pub(super) fn new<T: Float>(convention: &Convention<'_>) -> Result<Self> {
        let low = convention.not_negative::<T>("epsilon_low", convention.epsilon_low)?;
        let high = 1.0 + convention.not_negative::<T>("epsilon_high", convention.epsilon_high)?;
        let delta = match convention.delta {
            None => f64::INFINITY,
            Some(delta) => {
                let found = T::narrow(delta).widen();
                if !(found > high && found < f64::INFINITY) {
                    return Err(Error::Delta { found, high });
                }
                found
            }
        };
        Ok(Self {
            low: 1.0 - low,
            high,
            delta,
        })
    }

    /// −min(min(r, δ) A, clip(r) A): the sign of A says which bounds act, and only strictly outside them.
    ///
    /// A > 0: the smaller of r and clip(r) is min(r, high). A < 0: the larger of min(r, δ) and clip(r) is
    /// max(min(r, δ), low).
    #[inline(always)]
    fn clipped<S: Simd>(self, s: S, ratio: S::F64, tokens: Tokens<S>) -> Effect<S> {
        let gains = s.f64(0.0).lt(tokens.advantage);
        let (low, high, delta) = (s.f64(self.low), s.f64(self.high), s.f64(self.delta));
        let least = S::F64::select(gains, s.f64(f64::NEG_INFINITY), low);
        let most = S::F64::select(gains, high, delta);
        let taken = ratio.min(most).max(least);
        let value = minus_times(s, taken, tokens.constant);
        Effect {
            value,
            slope: S::F64::select(taken.eq(ratio), value, s.f64(0.0)),
            ratio,
            below: ratio.lt(low),
            above: high.lt(ratio),
            above_delta: delta.lt(ratio),
        }
    }
}

/// The clipped ratio of a token: GRPO, DAPO, bnpo-trl, Dr. GRPO.
#[derive(Clone, Copy)]
pub(super) struct Clip(pub(super) Bounds);

impl Surrogate for Clip {
    #[inline(always)]
    fn effect<T: Data, S: Simd>(self, s: S, tokens: Tokens<S>) -> Effect<S> {
        self.0.clipped(s, T::exp(s, tokens.difference), tokens)
    }
}

/// The row's ratio: GSPO, GSPO-token, LUSPO (its mean, clipped) and RLOO (its product).
///
/// A mean ratio stands n times in its row's sum and moves by r/n with each log-probability: by r in all, as a token's own
/// does. A product stands n times and moves by r with each: by n r.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    bounds: Bounds,
    is_product: bool,
    ratio: f64,
    reach: f64,
}

impl Whole {
    pub(super) fn mean(bounds: Bounds) -> Self {
        Self {
            bounds,
            is_product: false,
            ratio: 1.0,
            reach: 1.0,
        }
    }

    pub(super) fn product() -> Self {
        Self {
            bounds: NONE,
            is_product: true,
            ratio: 1.0,
            reach: 1.0,
        }
    }
}

impl Surrogate for Whole {
    fn row_ratio(self) -> RowRatio {
        if self.is_product {
            RowRatio::Product
        } else {
            RowRatio::Mean
        }
    }

    fn of_row(self, ratio: f64, tokens: usize) -> Self {
        let reach = if self.is_product { tokens as f64 } else { 1.0 };
        Self {
            ratio,
            reach,
            ..self
        }
    }

    #[inline(always)]
    fn effect<T: Data, S: Simd>(self, s: S, tokens: Tokens<S>) -> Effect<S> {
        let effect = self.bounds.clipped(s, s.f64(self.ratio), tokens);
        Effect {
            slope: effect.slope * s.f64(self.reach),
            ..effect
        }
    }
}

/// −stop(min(r, c)) A · policy: the truncated ratio is a constant, so every token keeps its gradient.
#[derive(Clone, Copy)]
pub(super) struct Truncated {
    cap: f64,
}

impl Truncated {
    pub(super) fn new<T: Float>(convention: &Convention<'_>) -> Result<Self> {
        let bound = convention.given("cispo_bound", convention.cispo_bound)?;
        let width = convention.positive::<T>("epsilon_high", convention.epsilon_high)?;
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
            positive: convention.positive::<T>("sapo_temperature_positive", Some(up))?,
            other: convention.positive::<T>("sapo_temperature_negative", Some(down))?,
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
        Ok(Self {
            low: -convention.not_negative::<T>("epsilon_low", convention.epsilon_low)?,
            high: convention.not_negative::<T>("epsilon_high", convention.epsilon_high)?,
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

/// Which bounds an algorithm has: lower, upper, δ.
pub(super) fn bounds_of(convention: &Convention<'_>) -> [bool; 3] {
    let algorithm: Algorithm = convention.algorithm;
    [
        algorithm.has_low(),
        algorithm.has_high(),
        convention.delta.is_some(),
    ]
}
