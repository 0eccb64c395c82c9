//! What the loss of tokens without the KL term is computed from, and what it gives.

use crate::data::Data;
use crate::double::Double;
use crate::isa::{Lanes, Simd};

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

/// A call that lacks only its surrogate.
pub(super) trait Call {
    /// What the call gives.
    type Output;
    /// Runs it.
    fn run<P: Surrogate>(self, surrogate: P) -> Self::Output;
}

/// −ratio · constant; 0 where the constant is 0, also for an infinite ratio.
#[inline(always)]
pub(super) fn minus_times<S: Simd>(s: S, ratio: S::F64, constant: S::F64) -> S::F64 {
    let zero = s.f64(0.0);
    S::F64::select(constant.eq(zero), zero, ratio * -constant)
}
