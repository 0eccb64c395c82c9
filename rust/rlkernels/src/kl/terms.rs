//! The estimators over lanes.
//!
//! The condition number of k3 with regard to d is d·(e^d − 1) / k3(d): 2 for small d, 2.91 at d = 2, about |d| above. So
//! for |d| ≤ 2 the rounding of d costs at most 2.91u, the polynomial and its products at most 4.5u
//! (`tests/kernels/kl_f32.rs` tries every d): together below 8u. For |d| > 2, [`far`] adds the rounding error of d again.
//! `f32` data is computed in `f64` only where some lane is far, which changes no other lane.
#![allow(clippy::excessive_precision)] // coefficients are written as they were fitted

use super::choice::KlRatio;
use super::samples::Samples;
use crate::Float;
use crate::chunks::{bits_of, padded};
use crate::double::{Double, two_difference, two_sum};
use crate::isa::{F64_LANES, Lanes, Mask, Simd};
use crate::math::{NAN_64, exp64};
use crate::rows::{Row, Rows};

/// The largest |d| for which the series is used; above it exp(d) − 1 − d loses little.
const NEAR: f64 = 2.0;

/// (e^d − 1 − d) / d² on |d| ≤ 2, relative error 0.52u (Remez' exchange in mpmath, coefficients rounded one by one).
const SERIES_32: [f32; 10] = [
    0.5,
    0.166_666_61,
    0.041_666_65,
    0.008_333_52,
    0.001_388_951_2,
    0.000_198_244_38,
    2.474_448_2e-5,
    2.809_897_8e-6,
    2.947_313e-7,
    1.994_919_9e-8,
];

/// The same, relative error 0.9u.
const SERIES_64: [f64; 18] = [
    0.5,
    0.166_666_666_666_666_66,
    0.041_666_666_666_666_66,
    0.008_333_333_333_333_58,
    0.001_388_888_888_888_970_3,
    0.000_198_412_698_411_818_8,
    2.480_158_730_129_810_4e-5,
    2.755_731_923_797_169_4e-6,
    2.755_731_926_995_932e-7,
    2.505_210_721_343_030_6e-8,
    2.087_675_312_196_254_2e-9,
    1.605_909_912_260_973e-10,
    1.147_092_957_894_153_5e-11,
    7.645_697_230_025_535e-13,
    4.774_504_155_013_560_5e-14,
    2.831_492_852_610_380_6e-15,
    1.632_922_112_903_046e-16,
    7.230_215_314_920_96e-18,
];

/// Vectors per step: one alone would wait for the result of each multiplication.
pub(super) const UNROLL: usize = 2;

/// k3(d) / d² for |d| ≤ 2, times a power of two, of several vectors.
#[inline(always)]
pub(super) fn series32<S: Simd, const N: usize>(s: S, d: &[S::F32; N], by: f32) -> [S::F32; N] {
    let mut tails = [s.f32(SERIES_32[9] * by); N];
    for &c in SERIES_32[..9].iter().rev() {
        for (tail, &d) in tails.iter_mut().zip(d) {
            *tail = tail.fma(d, s.f32(c * by));
        }
    }
    tails
}

/// Whether |d| ≤ 2, so that the series holds; false for NaN.
#[inline(always)]
pub(super) fn is_near32<S: Simd>(s: S, d: S::F32) -> S::M32 {
    d.abs().le(s.f32(NEAR as f32))
}

#[inline(always)]
fn series64<S: Simd>(s: S, d: S::F64) -> S::F64 {
    let mut tail = s.f64(SERIES_64[17]);
    for &c in SERIES_64[..17].iter().rev() {
        tail = tail.fma(d, s.f64(c));
    }
    d * d * tail
}

/// exp(d) − 1 − d for |d| > 2, infinities and NaN.
#[inline(always)]
pub(super) fn far<S: Simd>(s: S, policy: S::F64, reference: S::F64) -> S::F64 {
    let (d, low) = two_difference(reference, policy);
    let exp = exp64(s, d);
    let slope = exp - s.f64(1.0);
    let infinite = s.f64(f64::INFINITY);
    // the low part of an infinite d is NaN, and so is inf − inf for an infinite exponential
    let value = S::F64::select(d.abs().lt(infinite), low.fma(slope, slope - d), slope - d);
    S::F64::select(exp.eq(infinite), infinite, value)
}

/// The estimate number `E` of eight tokens; any NaN is the positive quiet one. `is_token` says which lanes matter.
#[inline(always)]
pub(super) fn estimate<S: Simd, const E: u8>(
    s: S,
    policy: S::F64,
    reference: S::F64,
    is_token: S::M64,
) -> S::F64 {
    let value = match E {
        1 => policy - reference, // not −(reference − policy): equal arguments give +0
        2 => {
            let d = reference - policy;
            (s.f64(0.5) * d) * d // in this order an overflow of d² alone does no harm
        }
        _ => {
            let d = reference - policy;
            let is_near = d.abs().le(s.f64(NEAR));
            let value = series64(s, d);
            if !(!is_near & is_token).any() {
                return value;
            }
            S::F64::select(is_near, value, far(s, policy, reference))
        }
    };
    S::F64::select(value.is_nan(), s.f64(NAN_64), value)
}

/// The samples, and what multiplies their estimates.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a, T> {
    pub(super) policy: &'a [T],
    pub(super) reference: &'a [T],
    pub(super) old: Option<&'a [T]>,
    pub(super) mask: Option<&'a [u8]>,
    ratio: KlRatio,
}

impl<'a, T: Float> Terms<'a, T> {
    pub(super) fn new(samples: &Samples<'a, T>, ratio: KlRatio, rows: &Rows<'a>) -> Self {
        Self {
            policy: samples.policy,
            reference: samples.reference,
            old: samples.old.filter(|_| ratio != KlRatio::None),
            mask: rows.mask(),
            ratio,
        }
    }

    /// Whether an estimate depends on the other tokens of its sequence.
    pub(super) fn needs_sequences(&self) -> bool {
        self.old.is_some() && self.ratio == KlRatio::Sequence
    }

    /// Whether estimates are multiplied by no ratio.
    pub(super) fn is_plain(&self) -> bool {
        self.old.is_none()
    }

    /// The ratio that all tokens of a sequence have: exp(mean(policy − old)), 1 where each has its own.
    #[inline(always)]
    pub(super) fn common_ratio<S: Simd>(&self, s: S, row: Row) -> S::F64 {
        let one = s.f64(1.0);
        let Some(old) = self.old.filter(|_| self.needs_sequences()) else {
            return one;
        };
        let zero = s.f64(0.0);
        let (mut sum, mut tokens) = (Double::zero(s), 0);
        let mut slot = row.start;
        while slot < row.tokens_end {
            let eight = Eight::of(self, slot, row.tokens_end);
            let is_token = s.mask64(eight.bits);
            let (policy, old) = (eight.load(s, self.policy), eight.load(s, old));
            let (difference, lost) = two_difference(policy, old);
            let difference = S::F64::select(is_token, difference, zero);
            let (high, error) = two_sum(sum.high, difference);
            let correction = S::F64::select(is_token, lost, zero) + error;
            let is_number = (correction * zero).eq(zero); // not after an overflow
            sum.high = high;
            sum.low = sum.low + S::F64::select(is_number, correction, zero);
            tokens += eight.bits.count_ones() as usize;
            slot += F64_LANES;
        }
        let mean = sum.total().over(tokens.max(1));
        let ratio = exp64(s, s.f64(mean.high));
        let corrected = ratio.fma(s.f64(mean.low), ratio);
        S::F64::select((corrected * zero).eq(zero), corrected, ratio)
    }

    /// The eight slots from `slot` on, before `end`: which are tokens, and their estimates, 0 elsewhere.
    #[inline(always)]
    pub(super) fn eight<S: Simd, const E: u8>(
        &self,
        s: S,
        slot: usize,
        end: usize,
        common: S::F64,
    ) -> (u8, S::F64) {
        let eight = Eight::of(self, slot, end);
        let is_token = s.mask64(eight.bits);
        let policy = eight.load(s, self.policy);
        let mut value = estimate::<S, E>(s, policy, eight.load(s, self.reference), is_token);
        if let Some(old) = self.old {
            let ratio = if self.needs_sequences() {
                common
            } else {
                token_ratio(s, policy, eight.load(s, old))
            };
            value = value * ratio;
            value = S::F64::select(value.is_nan(), s.f64(NAN_64), value);
        }
        (eight.bits, S::F64::select(is_token, value, s.f64(0.0)))
    }
}

/// exp(policy − old).
#[inline(always)]
fn token_ratio<S: Simd>(s: S, policy: S::F64, old: S::F64) -> S::F64 {
    let (difference, lost) = two_difference(policy, old);
    let ratio = exp64(s, difference);
    let corrected = ratio.fma(lost, ratio);
    let zero = s.f64(0.0);
    S::F64::select((corrected * zero).eq(zero), corrected, ratio) // an infinite one needs no correction
}

/// Eight slots, the last of which may be past the end of the row.
struct Eight {
    slot: usize,
    bits: u8,
    present: usize,
}

impl Eight {
    #[inline(always)]
    fn of<T>(terms: &Terms<'_, T>, slot: usize, end: usize) -> Self {
        let present = (end - slot).min(F64_LANES);
        let bits = match terms.mask {
            None => 0xff >> (F64_LANES - present),
            Some(mask) => bits_of(padded(&mask[slot..slot + present], 0)),
        };
        Self {
            slot,
            bits,
            present,
        }
    }

    #[inline(always)]
    fn load<S: Simd, T: Float>(&self, s: S, values: &[T]) -> S::F64 {
        let here = &values[self.slot..self.slot + self.present];
        T::load(s, &padded(here, T::narrow(0.0)))
    }
}
