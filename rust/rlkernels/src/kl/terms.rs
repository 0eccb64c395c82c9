//! The estimators over lanes.
//!
//! The condition of k3 with regard to d is d·(e^d − 1) / k3(d): 2 for small d, 2.91 at d = 2, about |d| beyond. So for
//! |d| ≤ 2 the rounding of d itself costs at most 2.91u, the polynomial and its products at most 4.5u (`tests/kernels/kl_f32.rs`
//! tries every d), and both stay below 8u; beyond, what the subtraction loses is brought in again. `f32` data needs
//! the exponential in `f64` lanes only where some lane is beyond, which changes no other lane.
#![allow(clippy::excessive_precision)] // coefficients are written as they were fitted

use super::{KlRatio, Samples};
use crate::Float;
use crate::isa::lanes::Mask;
use crate::isa::{F32_LANES, F64_LANES, Lanes, Simd};
use crate::math::{NAN_64, exp64, two_difference};
use crate::rows::{Row, Rows};

/// The difference up to which the series is used; exp(d) − 1 − d loses little beyond it.
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

/// Vectors whose series are computed side by side: one alone would wait for its own products.
pub(super) const ABREAST: usize = 2;

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

/// Whether the series holds; false for NaN.
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
pub(super) fn beyond<S: Simd>(s: S, policy: S::F64, reference: S::F64) -> S::F64 {
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
            S::F64::select(is_near, value, beyond(s, policy, reference))
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

    /// Whether every estimate stands for itself.
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
        let (mut high, mut low, mut tokens) = (zero, zero, 0u64);
        let mut slot = row.start;
        while slot < row.tokens_end {
            let eight = Eight::of(self, slot, row.tokens_end);
            let bits = eight.bits;
            let is_token = s.mask64(bits);
            let (policy, old) = (eight.load(s, self.policy), eight.load(s, old));
            let (difference, lost) = two_difference(policy, old);
            let difference = S::F64::select(is_token, difference, zero);
            let (sum, error) = crate::math::two_sum(high, difference);
            let correction = S::F64::select(is_token, lost, zero) + error;
            let is_number = (correction * zero).eq(zero); // not after an overflow
            high = sum;
            low = low + S::F64::select(is_number, correction, zero);
            tokens += u64::from(bits.count_ones());
            slot += F64_LANES;
        }
        let sum = crate::compensated::Sum::of_lanes(high, low);
        let (high, low) = sum.pair();
        let count = tokens.max(1) as f64;
        let mean = high / count;
        let rest = ((-mean).mul_add(count, high) + low) / count;
        let ratio = exp64(s, s.f64(mean));
        let corrected = ratio.fma(s.f64(rest), ratio);
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

/// Eight slots of which the last may lie beyond the end.
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
            Some(mask) => bits_of(filled(&mask[slot..slot + present], 0)),
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
        T::load(s, &filled(here, T::narrow(0.0)))
    }
}

/// Values filled up to a whole number of lanes; a copy only where some are missing.
#[inline(always)]
pub(super) fn filled<T: Copy, const N: usize>(values: &[T], with: T) -> [T; N] {
    if let Ok(&whole) = <&[T; N]>::try_from(values) {
        return whole;
    }
    let mut all = [with; N];
    for (to, &from) in all.iter_mut().zip(values) {
        *to = from;
    }
    all
}

/// Bit i says whether byte i is not 0.
#[inline(always)]
pub(super) fn bits_of(bytes: [u8; F64_LANES]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let word = u64::from_le_bytes(bytes);
    let top = (((word & LOW) + LOW) | word) & !LOW; // the top bit of every byte that is not 0
    ((top >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// As [`bits_of`], for sixteen.
#[inline(always)]
pub(super) fn bits_of_16(bytes: &[u8; F32_LANES]) -> u16 {
    let (halves, _) = bytes.as_chunks::<F64_LANES>();
    u16::from(bits_of(halves[0])) | u16::from(bits_of(halves[1])) << F64_LANES
}
