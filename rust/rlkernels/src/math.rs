//! exp and log. The platform's own functions differ between platforms, and so would results.
//!
//! `exp` is Cody and Waite's reduction with a minimax polynomial (fitted by mpmath's `chebyfit` to 200 bits, the error
//! is stated beside the coefficients); `log` is that of FreeBSD's msun (`e_log.c`). Worst errors, measured by
//! `tests/kernels/math.rs`: `f32` 0.853 and 0.5000 ulp over all inputs; `f64` at most one representable number beside the
//! platform's, which is right to less than an ulp, in 10^9 samples.
#![allow(clippy::excessive_precision)] // coefficients are written as they were published

use crate::Result;
use crate::error::same_length;
use crate::isa::{F32_LANES, F64_LANES, Kernel, Lanes, Simd, dispatch};

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// Adding and subtracting 1.5 · 2^52 rounds to an integer, ties to even.
const ROUND_64: f64 = 6_755_399_441_055_744.0;
/// 2^52 + 1023: the sum with an integer k holds the exponent field of 2^k in its lowest bits.
const POWER_64: f64 = 4_503_599_627_371_519.0;
/// As `ROUND_64`, for 23 bits.
const ROUND_32: f32 = 12_582_912.0;
/// 2^23 + 127.
const POWER_32: f32 = 8_388_735.0;

/// (e^r − 1 − r) / r² on |r| ≤ ln2/2, absolute error 1.4e-18.
const EXP_64: [f64; 11] = [
    0.5,
    0.166_666_666_666_666_7,
    0.041_666_666_666_666_67,
    0.008_333_333_333_326_136,
    0.001_388_888_888_888_374_8,
    0.000_198_412_698_748_206_27,
    2.480_158_732_554_774_3e-5,
    2.755_725_540_020_642_2e-6,
    2.755_727_364_311_03e-7,
    2.510_521_700_472_074_5e-8,
    2.091_468_696_808_687_6e-9,
];
/// The same, absolute error 1.4e-9.
const EXP_32: [f32; 6] = [
    0.5,
    0.166_666_67,
    0.041_666_467,
    0.008_333_310_5,
    0.001_393_365,
    0.000_198_909_91,
];

/// 2^k for integral k in −1022 ..= 1023.
#[inline(always)]
fn power64<S: Simd>(s: S, k: S::F64) -> S::F64 {
    (k + s.f64(POWER_64)).shift_left()
}

/// 2^k for integral k in −126 ..= 127.
#[inline(always)]
fn power32<S: Simd>(s: S, k: S::F32) -> S::F32 {
    (k + s.f32(POWER_32)).shift_left()
}

/// e^x: +inf beyond 709.78, subnormals down to −745.13 and 0 below, the positive quiet NaN for NaN.
#[inline(always)]
pub(crate) fn exp64<S: Simd>(s: S, x: S::F64) -> S::F64 {
    exp64_with::<S, false>(s, x, x)
}

/// e^(x + low), as [`exp64`], for a `low` of at most an ulp of x: what the rounding of x lost.
#[inline(always)]
pub(crate) fn exp64_sum<S: Simd>(s: S, x: S::F64, low: S::F64) -> S::F64 {
    exp64_with::<S, true>(s, x, low)
}

#[inline(always)]
fn exp64_with<S: Simd, const LOW: bool>(s: S, x: S::F64, rest: S::F64) -> S::F64 {
    let inside = x.min(s.f64(710.0)).max(s.f64(-746.0)); // e^710 = inf, e^−746 rounds to 0
    let round = s.f64(ROUND_64);
    let k = inside.fma(s.f64(LOG2_E), round) - round;
    let (high, low) = (
        s.f64(-0.693_147_180_558_298_7), // 38 bits of ln 2: k times it is exact
        s.f64(-1.646_594_958_289_708_2e-12),
    );
    let mut r = k.fma(low, k.fma(high, inside));
    if LOW {
        r = r + S::F64::select(inside.eq(x), rest, s.f64(0.0)); // beyond the range it may be large
    }
    let mut q = s.f64(EXP_64[10]);
    for &c in EXP_64[..10].iter().rev() {
        q = q.fma(r, s.f64(c));
    }
    let y = s.f64(1.0) + (r * r).fma(q, r);
    let half = k.fma(s.f64(0.5), round) - round;
    let value = y * power64(s, half) * power64(s, k - half); // in two steps: one rounding, in the subnormal range only
    S::F64::select(x.is_nan(), s.f64(NAN_64), value)
}

/// (e^r − 1 − r) / r² on |r| ≤ ln2/2, absolute error 1.4e-9: short, for data of 24 bits.
const EXP_SHORT: [f64; 6] = [
    0.500_000_001_345_794_9,
    0.166_666_666_816_145_03,
    0.041_666_465_003_818_244,
    0.008_333_310_934_202_13,
    0.001_393_364_127_864_790_8,
    0.000_198_909_811_436_687_99,
];

/// The parts of e^x for `f32` data in `f64` lanes: where x itself is the reduced argument r, half the power of two, e^r − 1,
/// and e^r − 1 − r. So e^x = 2 · e^r · half, to 2⁻³² relative: 0 below −708.04, +inf beyond 709.78, nothing for a NaN.
#[inline(always)]
pub(crate) fn expm1_short<S: Simd>(s: S, x: S::F64) -> (S::M64, S::F64, S::F64, S::F64) {
    let inside = x.min(s.f64(710.0)).max(s.f64(-708.7)); // 2^−1023, the half power there, is written as 0
    let round = s.f64(ROUND_64);
    let k = inside.fma(s.f64(LOG2_E), round) - round;
    let r = k.fma(s.f64(-std::f64::consts::LN_2), inside);
    let mut q = s.f64(EXP_SHORT[5]);
    for &c in EXP_SHORT[..5].iter().rev() {
        q = q.fma(r, s.f64(c));
    }
    let tail = r * r * q;
    let half = (k + s.f64(POWER_64 - 1.0)).shift_left();
    (k.eq(s.f64(0.0)), half, r + tail, tail)
}

/// e^x: +inf beyond 88.72, subnormals down to −103.97 and 0 below, the positive quiet NaN for NaN.
#[inline(always)]
pub(crate) fn exp32<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let inside = x.min(s.f32(89.0)).max(s.f32(-104.0)); // e^89 = inf, e^−104 rounds to 0
    let round = s.f32(ROUND_32);
    let k = inside.fma(s.f32(LOG2_E as f32), round) - round;
    let (high, low) = (s.f32(-0.693_145_75), s.f32(-1.428_606_8e-6)); // 15 bits of ln 2, and the rest
    let exact = k.fma(high, inside);
    let r = k.fma(low, exact);
    let lost = k.fma(low, exact - r); // without it the error reaches 1.06 ulp
    let mut q = s.f32(EXP_32[5]);
    for &c in EXP_32[..5].iter().rev() {
        q = q.fma(r, s.f32(c));
    }
    let y = s.f32(1.0) + (r + (r * r).fma(q, lost));
    let half = k.fma(s.f32(0.5), round) - round;
    let value = y * power32(s, half) * power32(s, k - half);
    S::F32::select(x.is_nan(), s.f32(NAN_32), value)
}

/// The natural logarithm: −inf at ±0, the positive quiet NaN below 0 and for NaN, +inf at +inf, subnormals included.
#[inline(always)]
pub(crate) fn log64<S: Simd>(s: S, x: S::F64) -> S::F64 {
    let tiny = x.lt(s.f64(f64::MIN_POSITIVE));
    let normal = S::F64::select(tiny, x * s.f64(18_014_398_509_481_984.0), x); // 2^54
    let field = normal.shift_right().or(s.f64(4_503_599_627_370_496.0)); // 2^52 + exponent field
    let bias = S::F64::select(tiny, s.f64(POWER_64 + 54.0), s.f64(POWER_64));
    let mantissa = normal
        .and(s.f64(f64::from_bits(0x000f_ffff_ffff_ffff)))
        .or(s.f64(1.0));
    let large = s.f64(std::f64::consts::SQRT_2).lt(mantissa);
    let k = (field - bias) + S::F64::select(large, s.f64(1.0), s.f64(0.0));
    let f = S::F64::select(large, mantissa * s.f64(0.5), mantissa) - s.f64(1.0);
    let ratio = f / (s.f64(2.0) + f);
    let z = ratio * ratio;
    let w = z * z;
    let even = w
        .fma(
            s.f64(1.531_383_769_920_937_332e-01),
            s.f64(2.222_219_843_214_978_396e-01),
        )
        .fma(w, s.f64(3.999_999_999_940_941_908e-01))
        * w;
    let odd = w
        .fma(
            s.f64(1.479_819_860_511_658_591e-01),
            s.f64(1.818_357_216_161_805_012e-01),
        )
        .fma(w, s.f64(2.857_142_874_366_239_149e-01))
        .fma(w, s.f64(6.666_666_666_666_735_130e-01))
        * z;
    let half_square = s.f64(0.5) * f * f;
    let correction = k.fma(
        s.f64(1.908_214_929_270_587_700_02e-10),
        ratio * (half_square + (even + odd)),
    );
    let value = k.fma(
        s.f64(6.931_471_803_691_238_164_90e-01), // 32 bits of ln 2: k times it is exact
        f - (half_square - correction),
    );
    let zero = s.f64(0.0);
    let value = S::F64::select(x.eq(s.f64(f64::INFINITY)), x, value);
    let value = S::F64::select(x.eq(zero), s.f64(f64::NEG_INFINITY), value);
    S::F64::select(zero.le(x), value, s.f64(NAN_64))
}

/// As [`log64`], which it uses and rounds once.
#[inline(always)]
pub(crate) fn log32<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (low, high) = s.widen(x);
    let value = s.narrow(log64(s, low), log64(s, high));
    S::F32::select(value.is_nan(), s.f32(NAN_32), value)
}

/// The one NaN that kernels return.
pub(crate) const NAN_64: f64 = f64::from_bits(0x7ff8_0000_0000_0000);
/// The one NaN that kernels return.
pub(crate) const NAN_32: f32 = f32::from_bits(0x7fc0_0000);

macro_rules! slice_function {
    ($(#[$doc:meta])* $name:ident, $float:ty, $lanes:expr, $load:ident, $body:ident, $fill:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// `out` has another length than `x`.
        pub fn $name(x: &[$float], out: &mut [$float]) -> Result<()> {
            struct Body<'a>(&'a [$float], &'a mut [$float]);
            impl Kernel for Body<'_> {
                type Output = ();
                #[inline(always)]
                fn run<S: Simd>(self, s: S) {
                    let (chunks, rest) = self.0.as_chunks::<{ $lanes }>();
                    let (outs, out_rest) = self.1.as_chunks_mut::<{ $lanes }>();
                    for (x, out) in chunks.iter().zip(outs) {
                        $body(s, s.$load(x)).store(out);
                    }
                    let mut last = [$fill; $lanes];
                    last[..rest.len()].copy_from_slice(rest);
                    out_rest.copy_from_slice(&$body(s, s.$load(&last)).array()[..rest.len()]);
                }
            }
            same_length("out", out.len(), x.len(), "`x`")?;
            dispatch(Body(x, out));
            Ok(())
        }
    };
}

slice_function!(
    /// e^x of every element; at most 1 ulp off (all 2^32 inputs tried). Overflow gives +inf, NaN the positive quiet NaN.
    exp_f32, f32, F32_LANES, load32, exp32, 0.0
);
slice_function!(
    /// e^x of every element; at most 2 ulp off. Overflow gives +inf, NaN the positive quiet NaN.
    exp_f64, f64, F64_LANES, load64, exp64, 0.0
);
slice_function!(
    /// ln x of every element; at most 1 ulp off (all 2^32 inputs tried). −inf at 0, the positive quiet NaN below 0.
    log_f32, f32, F32_LANES, load32, log32, 1.0
);
slice_function!(
    /// ln x of every element; at most 2 ulp off. −inf at 0, the positive quiet NaN below 0.
    log_f64, f64, F64_LANES, load64, log64, 1.0
);
