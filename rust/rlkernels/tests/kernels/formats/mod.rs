//! The formats of logits as tests see them, converted by definitions of their own.
#![allow(unreachable_pub)]

use std::fmt::Debug;

use rlkernels::logsoftmax::{Bf16, F16, Format};

/// A format as a test sees it: numbers in, numbers out, and the unit of its accuracy.
pub(crate) trait Tested:
    Format<Word: Debug + PartialEq + Default, Result: Debug + PartialEq + Default>
{
    /// k · 2u of docs/definitions.md, "Accuracy".
    const LIMIT: f64;
    /// Half a step of the words relative to their value, and the smallest normal word.
    const ROUNDING: (f64, f64);
    fn word(value: f64) -> Self::Word;
    fn real(word: Self::Word) -> f64;
    fn wide(result: Self::Result) -> f64;
    fn result(value: f64) -> Self::Result;
}

macro_rules! tested {
    ($format:ty, $limit:expr, $rounding:expr, $word:expr, $real:expr, $result:ty) => {
        impl Tested for $format {
            const LIMIT: f64 = $limit;
            const ROUNDING: (f64, f64) = $rounding;
            fn word(value: f64) -> Self::Word {
                $word(value)
            }
            fn real(word: Self::Word) -> f64 {
                $real(word)
            }
            fn wide(result: $result) -> f64 {
                f64::from(result)
            }
            fn result(value: f64) -> $result {
                value as $result
            }
        }
    };
}
/// Half a step of float32 relative to its value.
const U: f64 = 5.960_464_477_539_063e-8; // 2^-24
tested!(f32, 8.0 * U, (U, 1.2e-38), |x| x as f32, f64::from, f32);
// The naive sums lose more than 2^-53: mpmath judges float64 from Python.
tested!(f64, 1e-13, (0.0, 2.3e-308), |x| x, |x| x, f64);
tested!(
    Bf16,
    8.0 * U,
    (1.0 / 256.0, 1.2e-38),
    bfloat,
    from_bfloat,
    f32
);
tested!(F16, 8.0 * U, (1.0 / 2048.0, 6.2e-5), half, from_half, f32);

fn bfloat(value: f64) -> u16 {
    ((value as f32).to_bits() >> 16) as u16 // truncated: any bfloat16 will do
}
fn from_bfloat(word: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(word) << 16))
}
fn half(value: f64) -> u16 {
    if value.abs() > 65_504.0 {
        return if value < 0.0 { 0xfc00 } else { 0x7bff }; // no +inf from what is large
    }
    (0..0x7c00u16) // by search: the definition, and no other conversion
        .step_by(1024)
        .rev()
        .find(|&word| from_half(word) <= value.abs())
        .map_or(0, |start| {
            let step = from_half(start + 1) - from_half(start);
            start + ((value.abs() - from_half(start)) / step) as u16
        })
        | if value < 0.0 { 0x8000 } else { 0 }
}
fn from_half(word: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(word >> 10 & 31), f64::from(word & 1023));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 => f64::INFINITY,
        _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
    };
    if word >> 15 == 1 {
        -magnitude
    } else {
        magnitude
    }
}
