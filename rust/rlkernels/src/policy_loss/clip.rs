//! Clipped and unclipped ratios times advantages: those of tokens and those of whole rows.

use super::parameters::not_negative;
use super::surrogate::{Effect, RowRatio, Surrogate, Tokens, minus_times};
use crate::data::Data;
use crate::isa::{Lanes, Simd};
use crate::{Error, Float, Result};

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
    pub(super) fn new<T: Float>(
        algorithm: &'static str,
        low: Option<f64>,
        high: Option<f64>,
        delta: Option<f64>,
    ) -> Result<Self> {
        let low = not_negative::<T>(algorithm, "epsilon_low", low)?;
        let high = 1.0 + not_negative::<T>(algorithm, "epsilon_high", high)?;
        let delta = match delta {
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
