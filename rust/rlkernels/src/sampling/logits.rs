//! Logits of every element type, and how each becomes `f64` lanes.

use std::ops::Range;

use crate::isa::{F64_LANES, Simd};

/// Logits in one of the types in which models compute them.
#[derive(Debug, Clone, Copy)]
pub enum Logits<'a> {
    /// The bits of IEEE 754 binary16.
    F16(&'a [u16]),
    /// The bits of bfloat16: the upper half of a binary32.
    Bf16(&'a [u16]),
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
}

impl Logits<'_> {
    /// Number of logits.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F16(bits) | Self::Bf16(bits) => bits.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        match *self {
            Self::F16(bits) => Self::F16(&bits[range]),
            Self::Bf16(bits) => Self::Bf16(&bits[range]),
            Self::F32(values) => Self::F32(&values[range]),
            Self::F64(values) => Self::F64(&values[range]),
        }
    }

    /// All logits as `f64`, exactly.
    pub(super) fn widen_into(&self, out: &mut Vec<f64>) {
        out.clear();
        match *self {
            Self::F16(bits) => out.extend(bits.iter().map(|&b| f64::from(half(b)))),
            Self::Bf16(bits) => out.extend(bits.iter().map(|&b| f64::from(bfloat(b)))),
            Self::F32(values) => out.extend(values.iter().map(|&x| f64::from(x))),
            Self::F64(values) => out.extend(values),
        }
    }
}

/// The number whose binary16 bits these are, exactly.
pub(super) fn half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let value = if magnitude >= 0x0f80_0000 {
        f32::from_bits(magnitude | 0x7f80_0000) // inf or NaN
    } else {
        f32::from_bits(magnitude) * f32::from_bits(0x7780_0000) // 2^112, the difference of the biases; subnormals too
    };
    f32::from_bits(value.to_bits() | sign)
}

/// The number whose bfloat16 bits these are, exactly.
pub(super) fn bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// An element type of which a row is read without a copy.
pub(super) trait Value: Copy + PartialOrd + 'static {
    /// What stands past the end of a row: a token that cannot be drawn.
    const NONE: Self;
    fn widen(self) -> f64;
    fn lanes<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64;
}

impl Value for f32 {
    const NONE: Self = Self::NEG_INFINITY;
    fn widen(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn lanes<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64 {
        s.load64_from32(values)
    }
}

impl Value for f64 {
    const NONE: Self = Self::NEG_INFINITY;
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn lanes<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64 {
        s.load64(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_what_its_bits_say() {
        for bits in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
            let magnitude = match exponent {
                0 => fraction * 2f32.powi(-24),
                31 if fraction == 0.0 => f32::INFINITY,
                31 => f32::NAN,
                _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
            };
            let got = half(bits);
            if magnitude.is_nan() {
                assert!(got.is_nan());
            } else {
                let want = if bits >> 15 == 1 {
                    -magnitude
                } else {
                    magnitude
                };
                assert_eq!(got.to_bits(), want.to_bits(), "{bits:#06x}");
            }
        }
        assert_eq!(bfloat(0xc040), -3.0);
    }
}
