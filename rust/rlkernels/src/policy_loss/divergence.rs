//! The KL term of a policy loss: an estimate per token, and a gradient that flows through its ratio too.

use crate::data::Data;
use crate::double::Double;
use crate::isa::{Lanes, Simd};
use crate::kl::{Estimator, KlRatio};

/// Which KL, and what it needs of the row.
#[derive(Clone, Copy)]
pub(super) struct Divergence {
    pub(super) beta: f64,
    pub(super) estimator: Estimator,
    pub(super) ratio: KlRatio,
    /// The row's mean ratio and the mean of its estimates, where `ratio` is of the sequence.
    pub(super) row: (f64, f64),
}

/// The estimate of eight tokens, as it is and in the loss, and the slope; the last two before β.
pub(super) struct Term<L> {
    pub(super) estimate: L,
    pub(super) value: L,
    pub(super) slope: L,
}

/// No KL term.
pub(super) const NO_KL: u8 = 0;
/// The KL term that [`Divergence`] says.
pub(super) const ANY_KL: u8 = 1;
/// k3 with nothing that multiplies it.
pub(super) const PLAIN_K3: u8 = 2;

impl Divergence {
    /// Which of these it is.
    pub(super) fn kind(self) -> u8 {
        match (self.estimator, self.ratio) {
            _ if self.beta == 0.0 => NO_KL,
            (Estimator::K3, KlRatio::None) => PLAIN_K3,
            _ => ANY_KL,
        }
    }

    /// The same, with what the kind `KL` says in constants.
    #[inline(always)]
    pub(super) fn known<const KL: u8>(self) -> Self {
        if KL != PLAIN_K3 {
            return self;
        }
        Self {
            estimator: Estimator::K3,
            ratio: KlRatio::None,
            ..self
        }
    }

    /// The estimate with d = reference − policy, and its derivative by the policy's log-probability.
    #[inline(always)]
    pub(super) fn estimate<T: Data, S: Simd>(self, s: S, d: Double<S::F64>) -> (S::F64, S::F64) {
        match self.estimator {
            Estimator::K1 => (s.f64(0.0) - d.high, s.f64(1.0)),
            // in this order an overflow of d² alone does no harm
            Estimator::K2 => (s.f64(0.5) * d.high * d.high, -d.high),
            Estimator::K3 => {
                let growth = T::growth(s, d);
                (growth.k3, -growth.expm1)
            }
        }
    }

    /// ρ k and its slope. The token's ratio makes it r (k + k′), which is −r d for k3; the row's makes it
    /// ρ (k′ + the row's mean k), for ρ stands n times in the row's sum and moves by ρ/n.
    #[inline(always)]
    pub(super) fn term<T: Data, S: Simd>(
        self,
        s: S,
        d: Double<S::F64>,
        difference: Double<S::F64>,
    ) -> Term<S::F64> {
        let (estimate, slope) = self.estimate::<T, S>(s, d);
        match self.ratio {
            KlRatio::None => Term {
                estimate,
                value: estimate,
                slope,
            },
            KlRatio::Token => {
                let ratio = T::exp(s, difference);
                let both = match self.estimator {
                    Estimator::K3 => -d.high,
                    _ => estimate + slope,
                };
                Term {
                    estimate,
                    value: times(s, ratio, estimate),
                    slope: times(s, ratio, both),
                }
            }
            KlRatio::Sequence => {
                let (ratio, mean) = (s.f64(self.row.0), s.f64(self.row.1));
                Term {
                    estimate,
                    value: times(s, ratio, estimate),
                    slope: times(s, ratio, slope + mean),
                }
            }
        }
    }
}

/// The product; 0 where `x` is 0, also for an infinite ratio.
#[inline(always)]
fn times<S: Simd>(s: S, ratio: S::F64, x: S::F64) -> S::F64 {
    let zero = s.f64(0.0);
    S::F64::select(x.eq(zero), zero, ratio * x)
}
