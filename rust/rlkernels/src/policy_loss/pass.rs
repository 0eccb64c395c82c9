//! The pass over the rows of a part: the row's ratio where one is needed, then loss, gradient and metrics together.

use super::convention::KlRatio;
use super::divergence::Divergence;
use super::metrics::Tally;
use super::surrogate::{Effect, RowRatio, Surrogate, Tokens};
use super::{Signal, row_value};
use crate::Float;
use crate::data::{Data, Pair, Sums};
use crate::isa::{F64_LANES, Kernel, Lanes, Mask, Simd};
use crate::walk::{Columns, Groups, Part};

pub(super) const POLICY: usize = 0;
pub(super) const OLD: usize = 1;
pub(super) const REFERENCE: usize = 2;
pub(super) const ADVANTAGES: usize = 3;
pub(super) const WEIGHTS: usize = 4;

/// What all rows share. `KL`: there is a KL term.
#[derive(Clone, Copy)]
pub(super) struct Batch<'a, T, P> {
    pub(super) columns: Columns<'a, T, 5>,
    pub(super) advantages: Signal<'a, T>,
    pub(super) weights: Option<Signal<'a, T>>,
    pub(super) row_weights: &'a [f64],
    pub(super) surrogate: P,
    pub(super) divergence: Divergence,
}

/// One part of the rows, with its piece of the gradient.
pub(super) struct Pass<'a, 'b, T, P, const KL: bool> {
    pub(super) batch: &'b Batch<'a, T, P>,
    pub(super) part: Part<'b, T>,
}

/// A row's own values, in lanes.
#[derive(Clone, Copy)]
struct Row<S: Simd> {
    advantage: S::F64,
    weight: S::F64,
    /// What a token of the row weighs in the loss.
    share: S::F64,
}

/// Eight slots with everything that is read of them.
#[derive(Clone, Copy)]
struct Slots<S: Simd> {
    valid: S::M64,
    tokens: Tokens<S>,
    /// reference − policy.
    toward: Pair<S::F64>,
}

impl<T: Float, P: Surrogate, const KL: bool> Kernel for Pass<'_, '_, T, P, KL> {
    type Output = Tally;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Tally {
        let Self { batch, part } = self;
        let mut tally = Tally::default();
        let mut gradient = part.out;
        for (number, place) in part.places.iter().enumerate() {
            let row = part.first + number;
            let (to, rest) = gradient.split_at_mut(place.end - place.start);
            gradient = rest;
            let slots = place.valid_end - place.start;
            let (to, behind) = to.split_at_mut(slots);
            behind.fill(T::default());
            if place.tokens == 0 {
                to.fill(T::default());
                continue;
            }
            let columns = batch.columns.cut(place.start, place.valid_end);
            let (groups, rest) = columns.groups(slots);
            let values = Row {
                advantage: s.f64(row_value(batch.advantages, row)),
                weight: s.f64(batch.weights.map_or(1.0, |weights| row_value(weights, row))),
                share: s.f64(batch.row_weights[row]),
            };
            let mut surrogate = batch.surrogate;
            let mut divergence = batch.divergence;
            let needs_mean = KL && divergence.ratio == KlRatio::Sequence;
            let row_ratio = surrogate.row_ratio();
            let mut log_and_ratio = (0.0, 1.0);
            if needs_mean || row_ratio != RowRatio::Token {
                let mut first = First::new(s, surrogate, divergence, needs_mean);
                for groups in [groups, rest.groups()] {
                    first.add::<T, KL>(s, &groups, values);
                }
                let mean = first.differences.total::<T>().over(place.tokens);
                let whole = match row_ratio {
                    RowRatio::HeldMean => first.held.total::<T>().over(place.tokens),
                    RowRatio::Product => first.differences.total::<T>(),
                    _ => mean,
                };
                log_and_ratio = (whole.value(), whole.exp(s));
                surrogate = surrogate.of_row(log_and_ratio.1, place.tokens);
                divergence.row = (
                    mean.exp(s),
                    first.estimates.total::<T>().over(place.tokens).value(),
                );
            }
            let mut second = Second::new(s);
            let (to, to_rest) = to.as_chunks_mut::<F64_LANES>();
            let mut last = [T::default(); F64_LANES];
            let rest_len = to_rest.len();
            let pieces = [
                (groups, to),
                (rest.groups(), std::slice::from_mut(&mut last)),
            ];
            for (groups, to) in pieces {
                second.add::<T, P, KL>(s, surrogate, divergence, &groups, values, to);
            }
            to_rest.copy_from_slice(&last[..rest_len]);
            let of_row = (row_ratio != RowRatio::Token).then_some(log_and_ratio);
            let sign = match batch.advantages {
                Signal::Rows(values) => Some(values[row].widen()),
                Signal::Slots(_) => None,
            };
            tally.add_row::<T, S>(&second, batch.row_weights[row], place.tokens, of_row, sign);
        }
        tally
    }
}

/// The lanes of a group; slots that are no tokens have differences of 0 and a constant of 0.
#[inline(always)]
fn slots<T: Data, S: Simd, const KL: bool>(
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
    let toward = if KL {
        let reference = S::F64::select(valid, groups.load(s, REFERENCE, group), zero);
        T::minus(s, reference, policy)
    } else {
        difference
    };
    let (mut advantage, mut weight) = (row.advantage, row.weight);
    if groups.has(ADVANTAGES) {
        advantage = S::F64::select(valid, groups.load(s, ADVANTAGES, group), zero);
    }
    if groups.has(WEIGHTS) {
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

/// Sums over a row that must be known before its tokens can be weighed.
struct First<S: Simd, P> {
    surrogate: P,
    divergence: Divergence,
    needs_mean: bool,
    differences: Sums<S::F64>,
    held: Sums<S::F64>,
    estimates: Sums<S::F64>,
}

impl<S: Simd, P: Surrogate> First<S, P> {
    #[inline(always)]
    fn new(s: S, surrogate: P, divergence: Divergence, needs_mean: bool) -> Self {
        Self {
            surrogate,
            divergence,
            needs_mean,
            differences: Sums::new(s),
            held: Sums::new(s),
            estimates: Sums::new(s),
        }
    }

    #[inline(always)]
    fn add<T: Data, const KL: bool>(&mut self, s: S, groups: &Groups<'_, T, 5>, row: Row<S>) {
        for group in 0..groups.len() {
            let slots = slots::<T, S, KL>(s, groups, group, groups.bits(group), row);
            self.differences.add_pair::<T>(slots.tokens.difference);
            if self.surrogate.row_ratio() == RowRatio::HeldMean {
                // 0 in slots that are no tokens: it lies within the bounds
                self.held
                    .add_pair::<T>(self.surrogate.held(s, slots.tokens));
            }
            if KL && self.needs_mean {
                // 0 in slots that are no tokens: their difference is 0
                let (estimate, _) = self.divergence.estimate::<T, S>(s, slots.toward);
                self.estimates.add::<T>(estimate);
            }
        }
    }
}

/// Sums over a row while its gradient is written.
pub(super) struct Second<S: Simd> {
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

impl<S: Simd> Second<S> {
    #[inline(always)]
    fn new(s: S) -> Self {
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
    fn add<T: Data, P: Surrogate, const KL: bool>(
        &mut self,
        s: S,
        surrogate: P,
        divergence: Divergence,
        groups: &Groups<'_, T, 5>,
        row: Row<S>,
        gradient: &mut [[T; F64_LANES]],
    ) {
        let zero = s.f64(0.0);
        let beta = s.f64(divergence.beta);
        for (group, to) in gradient.iter_mut().enumerate().take(groups.len()) {
            let bits = groups.bits(group);
            if bits == 0 {
                *to = [T::default(); F64_LANES];
                continue;
            }
            let slots = slots::<T, S, KL>(s, groups, group, bits, row);
            let effect = surrogate.effect::<T, S>(s, slots.tokens);
            let (mut value, mut slope) = (effect.value, effect.slope);
            if KL {
                let term = divergence.term::<T, S>(s, slots.toward, slots.tokens.difference);
                self.estimates = self.estimates + S::F64::select(slots.valid, term.estimate, zero);
                value = beta.fma(S::F64::select(slots.valid, term.value, zero), value);
                slope = beta.fma(term.slope, slope);
            }
            self.loss.add::<T>(value);
            let slope = S::F64::select(slots.valid, slope * row.share, zero);
            T::store(s, slope, to);
            self.measure(s, &slots, &effect, groups.has(ADVANTAGES));
        }
    }

    /// The metrics' share of the pass.
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
            valid & effect.beyond,
        ];
        for (count, mask) in self.outside.iter_mut().zip(outside) {
            *count = *count + S::F64::select(mask, s.f64(1.0), zero);
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
