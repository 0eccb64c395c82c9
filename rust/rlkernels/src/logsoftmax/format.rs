//! The four formats of logits: how words are loaded into lanes and stored, and the polynomial for 2^r.

use super::ids::Ids;
use crate::Float;
use crate::double::two_sum;
use crate::half;
use crate::isa::{F32_LANES, F64_LANES, Lanes, Simd};

/// float16: its words are the bits in `u16`.
#[derive(Debug, Clone, Copy)]
pub enum F16 {}
/// bfloat16: its words are the bits in `u16`.
#[derive(Debug, Clone, Copy)]
pub enum Bf16 {}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// A format of logits: `f32`, `f64`, [`F16`] or [`Bf16`]. Sealed: the kernels' accuracy is argued for these four only.
pub trait Format: sealed::Sealed + Send + Sync + Sized + 'static {
    /// One logit in memory.
    type Word: Copy + Send + Sync + 'static;
    /// The type of log-probabilities, entropies and temperature: `f64` for `f64`, else `f32`.
    type Result: Float;
    /// NumPy's name of the format, for messages.
    const NAME: &'static str;

    /// The kernel behind `selective_log_softmax`; everything has been checked.
    #[doc(hidden)]
    fn forward(
        logits: &[Self::Word],
        ids: Ids<'_>,
        vocabulary: usize,
        temperature: f64,
        logprobs: &mut [Self::Result],
        entropy: Option<&mut [Self::Result]>,
    );
    /// The kernel behind `selective_log_softmax_backward`; everything has been checked.
    #[doc(hidden)]
    fn backward(
        logits: &[Self::Word],
        ids: Ids<'_>,
        grad_logprobs: &[Self::Result],
        grad_entropy: &[Self::Result],
        vocabulary: usize,
        temperature: f64,
        out: &mut [Self::Word],
    );
}

/// What the kernels need of a format; the half types are computed in the lanes of `f32`.
pub(crate) trait Vectors: Format {
    /// The lanes that the kernels compute with.
    type Vector<S: Simd>: Lanes;

    /// −inf.
    const LOWEST: Self::Word;
    /// Lanes of a vector.
    const LANES: usize;
    /// Bits of the mantissa of a lane.
    const MANTISSA: i32;
    /// The exponent field of 1.0 in a lane.
    const BIAS: f64;
    /// Coefficients of 2^r.
    const POWER: &'static [f64];

    /// The value, exactly.
    fn real(word: Self::Word) -> f64;
    /// The nearest word; half types round through `f32`.
    fn word(value: f64) -> Self::Word;
    /// The first `LANES` words; there are as many.
    fn load<S: Simd>(s: S, words: &[Self::Word]) -> Self::Vector<S>;
    /// Writes `LANES` words, rounded to nearest, ties to even; there is room for as many.
    fn store<S: Simd>(s: S, values: Self::Vector<S>, words: &mut [Self::Word]);
    /// The value, rounded to a lane's type, in every lane.
    fn splat<S: Simd>(s: S, value: f64) -> Self::Vector<S>;
    /// The lanes' values in order, exactly; unused ones are −inf.
    fn reals<S: Simd>(s: S, values: Self::Vector<S>) -> [f64; F32_LANES];
    /// Adds the lanes to a sum of two vectors.
    fn add<S: Simd>(s: S, sum: (S::F64, S::F64), values: Self::Vector<S>) -> (S::F64, S::F64);
}

/// 2^r on |r| ≤ 1/2, relative error 2.1 · 2^-24 (Remez, coefficients rounded one after the other).
const POWER_32: [f64; 6] = [
    1.000_000_1_f32 as f64,
    0.693_147_4_f32 as f64,
    0.240_219_19_f32 as f64,
    0.055_497_56_f32 as f64,
    0.009_684_896_f32 as f64,
    0.001_363_320_3_f32 as f64,
];

/// 2^r on |r| ≤ 1/2, relative error 0.18 · 2^-53.
const POWER_64: [f64; 12] = [
    1.0,
    0.693_147_180_559_945_7,
    0.240_226_506_959_101,
    0.055_504_108_664_787_86,
    0.009_618_129_107_605_61,
    0.001_333_355_815_397_183_6,
    0.000_154_035_304_439_089_92,
    1.525_272_693_227_858_2e-5,
    1.321_544_125_302_662_3e-6,
    1.018_081_529_930_482_7e-7,
    7.072_854_308_791_373e-9,
    4.055_668_742_639_701e-10,
];

macro_rules! single {
    ($format:ty, $word:ty, $lowest:expr, $real:expr, $round:expr, $load:expr, $store:expr) => {
        impl Vectors for $format {
            type Vector<S: Simd> = S::F32;
            const LOWEST: $word = $lowest;
            const LANES: usize = F32_LANES;
            const MANTISSA: i32 = 23;
            const BIAS: f64 = 127.0;
            const POWER: &'static [f64] = &POWER_32;

            #[inline(always)]
            fn real(word: $word) -> f64 {
                f64::from($real(word))
            }
            #[inline(always)]
            fn word(value: f64) -> $word {
                $round(f32::narrow(value))
            }
            #[inline(always)]
            fn load<S: Simd>(s: S, words: &[$word]) -> S::F32 {
                $load(s, words.first_chunk().unwrap_or(&[$lowest; F32_LANES]))
            }
            #[inline(always)]
            fn store<S: Simd>(_: S, values: S::F32, words: &mut [$word]) {
                if let Some(words) = words.first_chunk_mut() {
                    $store(values, words);
                }
            }
            #[inline(always)]
            fn splat<S: Simd>(s: S, value: f64) -> S::F32 {
                s.f32(value as f32)
            }
            #[inline(always)]
            fn reals<S: Simd>(_: S, values: S::F32) -> [f64; F32_LANES] {
                values.array().map(f64::from)
            }
            #[inline(always)]
            fn add<S: Simd>(s: S, sum: (S::F64, S::F64), values: S::F32) -> (S::F64, S::F64) {
                let (low, high) = s.widen(values); // 2^29 roundings of f64 stay below one of f32
                (sum.0 + low, sum.1 + high)
            }
        }
    };
}

#[inline(always)]
fn same<T>(value: T) -> T {
    value
}
#[inline(always)]
fn load32<S: Simd>(s: S, words: &[f32; F32_LANES]) -> S::F32 {
    s.load32(words)
}
#[inline(always)]
fn load_upper<S: Simd>(s: S, words: &[u16; F32_LANES]) -> S::F32 {
    s.load32_upper(words)
}
#[inline(always)]
fn load_half<S: Simd>(s: S, words: &[u16; F32_LANES]) -> S::F32 {
    s.load32(&half::from_halves(words))
}
#[inline(always)]
fn store32<L: Lanes<Array = [f32; F32_LANES]>>(values: L, words: &mut [f32; F32_LANES]) {
    values.store(words);
}
#[inline(always)]
fn store_bfloat<L: Lanes<Array = [f32; F32_LANES]>>(values: L, words: &mut [u16; F32_LANES]) {
    let values = values.array();
    for i in 0..F32_LANES {
        words[i] = half::to_bfloat(values[i]);
    }
}
#[inline(always)]
fn store_half<L: Lanes<Array = [f32; F32_LANES]>>(values: L, words: &mut [u16; F32_LANES]) {
    let values = values.array();
    for i in 0..F32_LANES {
        words[i] = half::to_half(values[i]);
    }
}

single!(f32, f32, f32::NEG_INFINITY, same, same, load32, store32);
single!(
    Bf16,
    u16,
    0xff80,
    half::from_bfloat,
    half::to_bfloat,
    load_upper,
    store_bfloat
);
single!(
    F16,
    u16,
    0xfc00,
    half::from_half,
    half::to_half,
    load_half,
    store_half
);

impl Vectors for f64 {
    type Vector<S: Simd> = S::F64;
    const LOWEST: Self = Self::NEG_INFINITY;
    const LANES: usize = F64_LANES;
    const MANTISSA: i32 = 52;
    const BIAS: f64 = 1023.0;
    const POWER: &'static [f64] = &POWER_64;

    #[inline(always)]
    fn real(word: Self) -> f64 {
        word
    }
    #[inline(always)]
    fn word(value: f64) -> Self {
        Self::narrow(value)
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, words: &[Self]) -> S::F64 {
        s.load64(words.first_chunk().unwrap_or(&[Self::LOWEST; F64_LANES]))
    }
    #[inline(always)]
    fn store<S: Simd>(_: S, values: S::F64, words: &mut [Self]) {
        if let Some(words) = words.first_chunk_mut() {
            values.store(words);
        }
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, value: f64) -> S::F64 {
        s.f64(value)
    }
    #[inline(always)]
    fn reals<S: Simd>(_: S, values: S::F64) -> [f64; F32_LANES] {
        let mut all = [Self::LOWEST; F32_LANES];
        all[..F64_LANES].copy_from_slice(&values.array());
        all
    }
    #[inline(always)]
    fn add<S: Simd>(_: S, sum: (S::F64, S::F64), values: S::F64) -> (S::F64, S::F64) {
        let (high, error) = two_sum(sum.0, values);
        (high, sum.1 + error)
    }
}
