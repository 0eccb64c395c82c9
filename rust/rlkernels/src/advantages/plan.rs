//! What is known of all groups before the first is computed, and from which sums a group's divisor follows.

use super::compensated::{Divisor, exp2};
use super::convention::{Baseline, Convention, EpsMode, Scale};
use crate::isa::{Lanes, Mask, Simd};

/// The largest group of the fast path; larger ones are rare and need longer sums.
const MOST: usize = 64;

/// What all groups have in common.
pub(super) struct Plan<'a> {
    pub(super) size: usize,
    pub(super) eps: f64,
    pub(super) convention: &'a Convention,
    pub(super) batch: Option<Divisor>,
    /// 1 / n.
    pub(super) share: f64,
    /// n − ddof.
    spread: f64,
    /// 1, or n / (n − 1) with a leave-one-out baseline.
    factor: f64,
    /// The factor of centred rewards, where it is the same in all groups.
    inverse: Option<f64>,
    /// Whether groups may take the fast path.
    pub(super) is_fast: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        size: usize,
        eps: f64,
        convention: &'a Convention,
        batch: Option<Divisor>,
    ) -> Self {
        let n = size as f64;
        let factor = match convention.baseline {
            Baseline::Mean => 1.0,
            Baseline::LeaveOneOut => n / (n - 1.0),
        };
        let (least, most) = (exp2(-400), exp2(400));
        let fits = |divisor: f64| least < divisor && divisor < most;
        let (inverse, is_fast) = match (convention.scale, batch) {
            (Scale::None, _) => (Some(factor), true),
            (_, Some(Divisor { scale, value })) => {
                let value = value.filter(|&value| scale == 1.0 && fits(value));
                (value.map(|value| factor / value), value.is_some())
            }
            (_, None) => (None, eps < most),
        };
        Self {
            size,
            eps,
            convention,
            batch,
            share: 1.0 / n,
            spread: n - convention.ddof as f64,
            factor,
            inverse,
            is_fast: is_fast && (2..=MOST).contains(&size),
        }
    }

    /// From Σx and Σx² of eight groups: the residual of the mean, the factor of centred rewards, and for which groups the
    /// fast path holds, bit i for lane i.
    #[inline(always)]
    pub(super) fn settle<S: Simd>(
        &self,
        s: S,
        sum: S::F64,
        squares: S::F64,
    ) -> (S::F64, S::F64, u32) {
        let residual = sum * s.f64(self.share);
        let lost = sum * residual;
        let q = squares - lost;
        let mut holds =
            (lost * s.f64(16.0)).le(squares) & s.f64(exp2(-800)).le(q) & q.le(s.f64(exp2(800)));
        if let Some(inverse) = self.inverse {
            return (residual, s.f64(inverse), holds.bits());
        }
        let (eps, variance) = (s.f64(self.eps), q / s.f64(self.spread));
        let divisor = match self.convention.eps_mode {
            EpsMode::Add => variance.sqrt() + eps,
            EpsMode::Inside => (variance + eps).sqrt(),
            EpsMode::Threshold => {
                let std = variance.sqrt();
                holds = holds & eps.le(std); // below it every advantage is 0
                std
            }
        };
        (residual, s.f64(self.factor) / divisor, holds.bits())
    }
}
