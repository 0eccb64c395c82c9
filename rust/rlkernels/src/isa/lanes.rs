//! The vectors of kernels: sixteen lanes of `f32`, eight of `f64`, and masks over them.
//!
//! Every operation is IEEE 754 and rounds once, so a kernel gives the same bits on every instruction set. Vectors can only
//! be made with a token of [`Simd`], which exists only where the machine has the instructions.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// Lanes of one `F32`.
pub(crate) const F32_LANES: usize = 16;
/// Lanes of one `F64`.
pub(crate) const F64_LANES: usize = 8;

/// One truth value per lane.
pub(crate) trait Mask:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
    /// Bit i is lane i.
    fn bits(self) -> u32;
    /// Whether at least one lane is true.
    #[inline(always)]
    fn any(self) -> bool {
        self.bits() != 0
    }
    /// Number of true lanes.
    #[inline(always)]
    fn count(self) -> u32 {
        self.bits().count_ones()
    }
}

/// A fixed number of floating-point lanes.
pub(crate) trait Lanes:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// `f32` or `f64`.
    type Elem: Copy;
    /// `[f32; 16]` or `[f64; 8]`.
    type Array: Copy;
    /// The result of a comparison.
    type Mask: Mask;

    /// `self * factor + term`, rounded once.
    fn fma(self, factor: Self, term: Self) -> Self;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// The sign bit cleared.
    fn abs(self) -> Self;
    /// `self < other`; false where either is NaN.
    fn lt(self, other: Self) -> Self::Mask;
    /// `self <= other`; false where either is NaN.
    fn le(self, other: Self) -> Self::Mask;
    /// `self == other`; false where either is NaN.
    fn eq(self, other: Self) -> Self::Mask;
    /// The bits that both have.
    fn and(self, other: Self) -> Self;
    /// The bits that either has.
    fn or(self, other: Self) -> Self;
    /// The bits shifted left by the width of the mantissa (23 or 52).
    fn shift_left(self) -> Self;
    /// The bits shifted right by the width of the mantissa, zeros moved in.
    fn shift_right(self) -> Self;
    /// `yes` where the mask is true, `no` elsewhere.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// The lanes in order.
    fn array(self) -> Self::Array;
    /// Writes the lanes in order.
    fn store(self, out: &mut Self::Array);

    /// Whether a lane is NaN.
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        !self.eq(self)
    }
    /// The smaller by comparison; `other` where either is NaN.
    fn min(self, other: Self) -> Self;
    /// The larger by comparison; `other` where either is NaN.
    fn max(self, other: Self) -> Self;
}

/// A token that proves that the machine has an instruction set; the only way to make vectors.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen `f32`.
    type F32: Lanes<Elem = f32, Array = [f32; F32_LANES], Mask = Self::M32>;
    /// Eight `f64`.
    type F64: Lanes<Elem = f64, Array = [f64; F64_LANES], Mask = Self::M64>;
    /// Sixteen truth values.
    type M32: Mask;
    /// Eight truth values.
    type M64: Mask;

    /// The same value in every lane.
    fn f32(self, value: f32) -> Self::F32;
    /// The same value in every lane.
    fn f64(self, value: f64) -> Self::F64;
    /// Sixteen values.
    fn load32(self, values: &[f32; F32_LANES]) -> Self::F32;
    /// Eight values.
    fn load64(self, values: &[f64; F64_LANES]) -> Self::F64;
    /// Eight `f32`, exactly.
    fn load64_from32(self, values: &[f32; F64_LANES]) -> Self::F64;
    /// Eight values, each rounded to `f32`.
    fn store64_to32(self, values: Self::F64, out: &mut [f32; F64_LANES]);
    /// Sixteen 16-bit words as the upper halves of the lanes' bits: bfloat16 is then exact.
    fn load32_upper(self, words: &[u16; F32_LANES]) -> Self::F32;
    /// The lanes 0 to 7 and 8 to 15, exactly.
    fn widen(self, values: Self::F32) -> (Self::F64, Self::F64);
    /// The inverse of `widen`, each lane rounded to `f32`.
    fn narrow(self, low: Self::F64, high: Self::F64) -> Self::F32;
    /// Lane i is bit i.
    fn mask32(self, bits: u16) -> Self::M32;
    /// Lane i is bit i.
    fn mask64(self, bits: u8) -> Self::M64;
    /// Lane i is the sum of `rows[i]`, in the order of [`tree64`].
    fn sums64(self, rows: &[Self::F64; F64_LANES]) -> Self::F64;
}

/// A function that is compiled for every instruction set. `run` must be `#[inline(always)]`, and so must the functions that
/// it calls with lanes: a function that is not inlined, or a closure, is compiled without the instructions and is slow.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// Runs on the lanes of `simd`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// The sum of the lanes in the one order that every kernel uses: halves, quarters, eighths.
pub(crate) fn tree64(lanes: [f64; F64_LANES]) -> f64 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}
