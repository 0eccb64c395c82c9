//! Logits of every element type, and how each becomes `f64` lanes.

use std::ops::Range;

use crate::half::{from_bfloat, from_half};
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
            Self::F16(bits) => out.extend(bits.iter().map(|&b| f64::from(from_half(b)))),
            Self::Bf16(bits) => out.extend(bits.iter().map(|&b| f64::from(from_bfloat(b)))),
            Self::F32(values) => out.extend(values.iter().map(|&x| f64::from(x))),
            Self::F64(values) => out.extend(values),
        }
    }
}

/// An element type of which a row is read without a copy.
pub(super) trait Value: Copy + PartialOrd + 'static {
    /// What stands past the end of a row: a token that cannot be drawn.
    const NONE: Self;
    fn widen(self) -> f64;
    /// The next smaller number.
    fn next_below(self) -> Self;
    fn lanes<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64;
}

impl Value for f32 {
    const NONE: Self = Self::NEG_INFINITY;
    fn widen(self) -> f64 {
        f64::from(self)
    }
    fn next_below(self) -> Self {
        self.next_down()
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
    fn next_below(self) -> Self {
        self.next_down()
    }
    #[inline(always)]
    fn lanes<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64 {
        s.load64(values)
    }
}
