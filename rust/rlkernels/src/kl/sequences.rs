//! One value per sequence.

use super::choice::{Estimator, Reduction, by_estimator};
use super::terms::{Terms, UNROLL, far, is_near32, series32};
use crate::Float;
use crate::chunks::{bits_of_16, padded};
use crate::double::Double;
use crate::isa::{F32_LANES, F64_LANES, Kernel, Lanes, Mask, Simd, tree64};
use crate::rows::{Row, RowIter};

/// Writes the reduction of every row to `out`.
pub(super) fn each<T: Float>(
    estimator: Estimator,
    terms: Terms<'_, T>,
    rows: RowIter<'_>,
    reduction: Reduction,
    out: &mut [T],
) {
    by_estimator!(
        estimator,
        Sequences {
            terms,
            rows,
            reduction,
            out
        }
    );
}

struct Sequences<'a, T, const E: u8> {
    terms: Terms<'a, T>,
    rows: RowIter<'a>,
    reduction: Reduction,
    out: &'a mut [T],
}

impl<T: Float, const E: u8> Kernel for Sequences<'_, T, E> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let terms = &self.terms;
        for (row, out) in self.rows.zip(self.out) {
            let (sum, tokens) = if E == 3
                && terms.is_plain()
                && let (Some(policy), Some(reference)) =
                    (T::f32s(terms.policy), T::f32s(terms.reference))
            {
                let range = row.start..row.tokens_end;
                let (policy, reference) = (&policy[range.clone()], &reference[range.clone()]);
                match terms.mask {
                    None => (
                        k3_32::<S, false>(s, policy, reference, &[]).0,
                        range.len() as u64,
                    ),
                    Some(mask) => k3_32::<S, true>(s, policy, reference, &mask[range]),
                }
            } else {
                row64::<S, T, E>(s, terms, row)
            };
            *out = T::narrow(match self.reduction {
                Reduction::Sum => sum,
                Reduction::Mean => sum / tokens.max(1) as f64,
            });
        }
    }
}

/// Σ of a row's estimates, compensated, and the number of its tokens.
#[inline(always)]
fn row64<S: Simd, T: Float, const E: u8>(s: S, terms: &Terms<'_, T>, row: Row) -> (f64, u64) {
    let common = terms.common_ratio(s, row);
    let mut sum = Double::zero(s);
    let (mut slot, mut tokens) = (row.start, 0);
    while slot < row.tokens_end {
        let (bits, value) = terms.eight::<S, E>(s, slot, row.tokens_end, common);
        sum = sum.plus(value);
        tokens += u64::from(bits.count_ones());
        slot += F64_LANES;
    }
    (sum.total().value(), tokens)
}

/// 2^120: terms are scaled by it, so that none that counts is a subnormal of `f32`.
const SCALE: f32 = (1u128 << 120) as f32;

/// Σ k3 of a row of `f32`, added up in `f64`, and the number of its tokens. Terms are scaled by [`SCALE`]; |d| ≤ 2 keeps
/// them below the overflow of `f32`, and larger |d| are computed in `f64`.
#[inline(always)]
fn k3_32<S: Simd, const MASKED: bool>(
    s: S,
    policy: &[f32],
    reference: &[f32],
    mask: &[u8],
) -> (f64, u64) {
    let (policies, policy_rest) = policy.as_chunks::<F32_LANES>();
    let (references, reference_rest) = reference.as_chunks::<F32_LANES>();
    let (masks, mask_rest) = mask.as_chunks::<F32_LANES>();
    let (policy_runs, policies) = policies.as_chunks::<UNROLL>();
    let (reference_runs, references) = references.as_chunks::<UNROLL>();
    let (mask_runs, masks) = masks.as_chunks::<UNROLL>();
    let mut sums = Sums::new(s);
    for (i, (policy, reference)) in policy_runs.iter().zip(reference_runs).enumerate() {
        let mask = if MASKED { Some(&mask_runs[i]) } else { None };
        sums.add(s, policy, reference, mask);
    }
    for (i, (policy, reference)) in policies.iter().zip(references).enumerate() {
        let mask = if MASKED { Some(&[masks[i]]) } else { None };
        sums.add(s, &[*policy], &[*reference], mask);
    }
    if !policy_rest.is_empty() {
        let (policy, reference) = ([padded(policy_rest, 0.0)], [padded(reference_rest, 0.0)]);
        let mask = [padded(mask_rest, 0)];
        let mask = if MASKED { Some(&mask) } else { None };
        sums.add(s, &policy, &reference, mask); // the padding has d = 0 and adds 0
    }
    let sum = tree64((sums.low + sums.high).array());
    (sum / f64::from(SCALE), sums.tokens)
}

/// Sums over the lower and the upper eight lanes.
struct Sums<S: Simd> {
    low: S::F64,
    high: S::F64,
    /// With a mask, the number of tokens so far.
    tokens: u64,
}

impl<S: Simd> Sums<S> {
    #[inline(always)]
    fn new(s: S) -> Self {
        let (low, high) = (s.f64(0.0), s.f64(0.0));
        Self {
            low,
            high,
            tokens: 0,
        }
    }

    /// Adds the terms of some vectors.
    #[inline(always)]
    fn add<const N: usize>(
        &mut self,
        s: S,
        policy: &[[f32; F32_LANES]; N],
        reference: &[[f32; F32_LANES]; N],
        mask: Option<&[[u8; F32_LANES]; N]>,
    ) {
        let (mut d, mut bits) = ([s.f32(0.0); N], [u16::MAX; N]);
        let mut all_near = s.mask32(u16::MAX);
        for i in 0..N {
            if let Some(mask) = mask {
                bits[i] = bits_of_16(&mask[i]);
                self.tokens += u64::from(bits[i].count_ones());
            }
            d[i] = s.load32(&reference[i]) - s.load32(&policy[i]);
            let is_near = is_near32(s, d[i]);
            all_near = all_near
                & if mask.is_some() {
                    is_near | !s.mask32(bits[i])
                } else {
                    is_near
                };
        }
        let some_far = all_near.bits() != 0xffff;
        let mut values = series32(s, &d, SCALE);
        for i in 0..N {
            let mut value = values[i] * d[i] * d[i];
            if mask.is_some() {
                value = S::F32::select(s.mask32(bits[i]), value, s.f32(0.0));
            }
            values[i] = value;
        }
        for (i, value) in values.into_iter().enumerate() {
            let (mut low, mut high) = s.widen(value);
            if some_far {
                let is_far = !is_near32(s, d[i]).bits() & u32::from(bits[i]);
                let terms = far_scaled(s, &policy[i], &reference[i]);
                low = S::F64::select(s.mask64(is_far as u8), terms.0, low);
                high = S::F64::select(s.mask64((is_far >> F64_LANES) as u8), terms.1, high);
            }
            (self.low, self.high) = (self.low + low, self.high + high);
        }
    }
}

/// The terms of sixteen tokens whose |d| is above 2, times [`SCALE`].
#[inline(always)]
fn far_scaled<S: Simd>(
    s: S,
    policy: &[f32; F32_LANES],
    reference: &[f32; F32_LANES],
) -> (S::F64, S::F64) {
    let ((p, q), (r, t)) = (s.widen(s.load32(policy)), s.widen(s.load32(reference)));
    let scale = s.f64(f64::from(SCALE));
    (far(s, p, r) * scale, far(s, q, t) * scale)
}
