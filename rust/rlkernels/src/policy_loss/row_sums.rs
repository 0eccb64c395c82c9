//! Sums over the tokens of a row: those that give its ratio, then those of loss and metrics.

use super::divergence::{Divergence, NO_KL};
use super::surrogate::{Effect, RowRatio, Surrogate, Tokens};
use crate::chunks::Groups;
use crate::data::{Data, Sums};
use crate::double::Double;
use crate::isa::{F64_LANES, Lanes, Mask, Simd};

// Columns.
const POLICY: usize = 0;
const OLD: usize = 1;
const REFERENCE: usize = 2;
const ADVANTAGES: usize = 3;
const WEIGHTS: usize = 4;

/// The bits of eight slots that are all tokens.
const ALL: u8 = 0xff;

/// A row's own values, in lanes.
#[derive(Clone, Copy)]
pub(super) struct Row<S: Simd> {
    pub(super) advantage: S::F64,
    pub(super) weight: S::F64,
    /// The weight of each of the row's tokens in the loss.
    pub(super) share: S::F64,
}

/// Everything that is read of eight slots.
#[derive(Clone, Copy)]
struct Slots<S: Simd> {
    valid: S::M64,
    tokens: Tokens<S>,
    /// reference − policy.
    toward: Double<S::F64>,
}

/// Loads a group; slots that are no tokens get differences of 0 and a constant of 0. `SLOTS`: some signal is of slots.
#[inline(always)]
fn slots<T: Data, S: Simd, const KL: u8, const SLOTS: bool>(
    s: S,
    groups: &Groups<'_, T, 5>,
    group: usize,
    bits: u8,
    row: Row<S>,
) -> Slots<S> {
    let zero = s.f64(0.0);
    let valid = s.mask64(bits);
    let policy = S::F64::select(valid, groups.load(s, POLICY, group), zero);
    let old = S::F64::select(valid, groups.load(s, OLD, group), zero);
    let difference = T::minus(s, policy, old);
    let toward = if KL == NO_KL {
        difference
    } else {
        let reference = S::F64::select(valid, groups.load(s, REFERENCE, group), zero);
        T::minus(s, reference, policy)
    };
    let (mut advantage, mut weight) = (row.advantage, row.weight);
    if SLOTS && groups.has(ADVANTAGES) {
        advantage = S::F64::select(valid, groups.load(s, ADVANTAGES, group), zero);
    }
    if SLOTS && groups.has(WEIGHTS) {
        weight = S::F64::select(valid, groups.load(s, WEIGHTS, group), zero);
    }
    let constant = S::F64::select(valid, advantage * weight, zero);
    Slots {
        valid,
        tokens: Tokens {
            policy,
            difference,
            advantage,
            constant,
        },
        toward,
    }
}

/// Sums over a row from which its ratio is computed, before the loss of its tokens.
pub(super) struct RatioSums<S: Simd, P> {
    surrogate: P,
    divergence: Divergence,
    needs_mean: bool,
    pub(super) differences: Sums<S::F64>,
    pub(super) clipped: Sums<S::F64>,
    pub(super) estimates: Sums<S::F64>,
}

impl<S: Simd, P: Surrogate> RatioSums<S, P> {
    #[inline(always)]
    pub(super) fn new(s: S, surrogate: P, divergence: Divergence, needs_mean: bool) -> Self {
        Self {
            surrogate,
            divergence,
            needs_mean,
            differences: Sums::new(s),
            clipped: Sums::new(s),
            estimates: Sums::new(s),
        }
    }

    #[inline(always)]
    pub(super) fn add<T: Data, const KL: u8, const SLOTS: bool>(
        &mut self,
        s: S,
        groups: &Groups<'_, T, 5>,
        row: Row<S>,
    ) {
        for group in 0..groups.len() {
            let slots = slots::<T, S, KL, SLOTS>(s, groups, group, groups.bits(group), row);
            self.differences.add_double::<T>(slots.tokens.difference);
            if self.surrogate.row_ratio() == RowRatio::ClippedMean {
                // 0 in slots that are no tokens: it lies within the bounds
                self.clipped
                    .add_double::<T>(self.surrogate.clipped_difference(s, slots.tokens));
            }
            if KL != NO_KL && self.needs_mean {
                // 0 in slots that are no tokens: their difference is 0
                let (estimate, _) = self.divergence.estimate::<T, S>(s, slots.toward);
                self.estimates.add::<T>(estimate);
            }
        }
    }
}

/// Sums over a row that are computed together with its gradient.
pub(super) struct LossSums<S: Simd> {
    pub(super) loss: Sums<S::F64>,
    pub(super) estimates: S::F64,
    pub(super) ratios: S::F64,
    pub(super) differences: S::F64,
    pub(super) least: S::F64,
    pub(super) most: S::F64,
    /// Tokens below the lower bound, above the upper, and above δ, whatever the advantage.
    pub(super) outside: [S::F64; 3],
    /// The same with an advantage that makes the clip act; counted where slots have advantages of their own.
    pub(super) clipped: [usize; 3],
}

impl<S: Simd> LossSums<S> {
    #[inline(always)]
    pub(super) fn new(s: S) -> Self {
        let zero = s.f64(0.0);
        Self {
            loss: Sums::new(s),
            estimates: zero,
            ratios: zero,
            differences: zero,
            least: s.f64(f64::INFINITY),
            most: s.f64(f64::NEG_INFINITY),
            outside: [zero; 3],
            clipped: [0; 3],
        }
    }

    #[inline(always)]
    pub(super) fn add<T: Data, P: Surrogate, const KL: u8, const SLOTS: bool>(
        &mut self,
        s: S,
        surrogate: P,
        divergence: Divergence,
        groups: &Groups<'_, T, 5>,
        row: Row<S>,
        gradient: &mut [[T; F64_LANES]],
    ) {
        for (group, to) in gradient.iter_mut().enumerate().take(groups.len()) {
            match groups.bits(group) {
                0 => *to = [T::default(); F64_LANES],
                // As the next line, with a mask that the compiler sees through: 15% less time.
                ALL => {
                    self.eight::<T, P, KL, SLOTS>(
                        s, surrogate, divergence, groups, group, ALL, row, to,
                    );
                }
                bits => {
                    self.eight::<T, P, KL, SLOTS>(
                        s, surrogate, divergence, groups, group, bits, row, to,
                    );
                }
            }
        }
    }

    /// Adds eight slots, of which those in `bits` are tokens, and writes their gradient.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // the loop's variables
    fn eight<T: Data, P: Surrogate, const KL: u8, const SLOTS: bool>(
        &mut self,
        s: S,
        surrogate: P,
        divergence: Divergence,
        groups: &Groups<'_, T, 5>,
        group: usize,
        bits: u8,
        row: Row<S>,
        to: &mut [T; F64_LANES],
    ) {
        let (zero, beta) = (s.f64(0.0), s.f64(divergence.beta));
        let slots = slots::<T, S, KL, SLOTS>(s, groups, group, bits, row);
        let effect = surrogate.effect::<T, S>(s, slots.tokens);
        let (mut value, mut slope) = (effect.value, effect.slope);
        if KL != NO_KL {
            let divergence = divergence.known::<KL>();
            let term = divergence.term::<T, S>(s, slots.toward, slots.tokens.difference);
            self.estimates = self.estimates + S::F64::select(slots.valid, term.estimate, zero);
            value = beta.fma(S::F64::select(slots.valid, term.value, zero), value);
            slope = beta.fma(term.slope, slope);
        }
        self.loss.add::<T>(value);
        let slope = S::F64::select(slots.valid, slope * row.share, zero);
        T::store(s, slope, to);
        self.measure(s, &slots, &effect, SLOTS && groups.has(ADVANTAGES));
    }

    /// Adds eight slots to the sums for metrics.
    #[inline(always)]
    fn measure(&mut self, s: S, slots: &Slots<S>, effect: &Effect<S>, has_own_advantages: bool) {
        let zero = s.f64(0.0);
        let valid = slots.valid;
        let ratio = effect.ratio;
        self.ratios = self.ratios + S::F64::select(valid, ratio, zero);
        self.differences = self.differences + slots.tokens.difference.high;
        self.least = self.least.min(S::F64::select(valid, ratio, self.least));
        self.most = self.most.max(S::F64::select(valid, ratio, self.most));
        let outside = [
            valid & effect.below,
            valid & effect.above,
            valid & effect.above_delta,
        ];
        for (count, mask) in self.outside.iter_mut().zip(outside) {
            *count = S::F64::select(mask, *count + s.f64(1.0), *count); // one masked addition in AVX-512
        }
        if has_own_advantages {
            let gains = zero.lt(slots.tokens.advantage);
            let losses = slots.tokens.advantage.lt(zero);
            self.clipped[0] += (outside[0] & losses).count() as usize;
            self.clipped[1] += (outside[1] & gains).count() as usize;
            self.clipped[2] += (outside[2] & losses).count() as usize;
        }
    }
}
