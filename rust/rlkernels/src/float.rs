//! The two element types of the kernels and how each reaches its accuracy.
#![allow(clippy::inline_always)] // what uses lanes must be inlined into the function that has the instructions

use crate::isa::{F64_LANES, Lanes, Simd};

mod sealed {
    use super::{F64_LANES, Simd};

    /// The element type in lanes of `f64`.
    #[allow(private_bounds, private_interfaces)] // nobody outside can name this trait
    pub trait Sealed: Sized {
        /// Eight values, exactly.
        fn load<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64;
        /// Eight values, each rounded once.
        fn store<S: Simd>(s: S, values: S::F64, out: &mut [Self; F64_LANES]);
    }
}

impl sealed::Sealed for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64 {
        s.load64_from32(values)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, values: S::F64, out: &mut [Self; F64_LANES]) {
        s.store64_to32(values, out);
    }
}

impl sealed::Sealed for f64 {
    #[inline(always)]
    fn load<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64 {
        s.load64(values)
    }
    #[inline(always)]
    fn store<S: Simd>(_: S, values: S::F64, out: &mut [Self; F64_LANES]) {
        values.store(out);
    }
}

/// `f32` or `f64`. Sealed: the kernels' accuracy is argued for these two types only.
pub trait Float: Copy + Send + Sync + sealed::Sealed + 'static {
    /// NumPy's name of the type, for messages.
    const NAME: &'static str;
    /// True where a plain `f64` sum is not accurate enough for this type.
    const COMPENSATE: bool;
    /// Number of terms of the series of k3 that this type needs on `|d| <= 2`.
    const K3_TERMS: usize;
    /// The value as `f64`, exactly.
    fn widen(self) -> f64;
    /// The nearest value of this type; a NaN becomes the positive quiet NaN, whatever machine made it.
    fn narrow(value: f64) -> Self;
    /// `a - b` as an unevaluated sum `(high, low)` that is exact to the accuracy this type needs.
    fn difference(a: Self, b: Self) -> (f64, f64);
}

impl Float for f32 {
    const NAME: &'static str = "float32";
    const COMPENSATE: bool = false; // 2^29 terms of f64 rounding stay below one f32 rounding
    const K3_TERMS: usize = 17; // 2^19 / 19! = 4e-12, far below 2^-24

    fn widen(self) -> f64 {
        f64::from(self)
    }

    fn narrow(value: f64) -> Self {
        if value.is_nan() {
            Self::from_bits(0x7fc0_0000)
        } else {
            value as Self
        }
    }

    fn difference(a: Self, b: Self) -> (f64, f64) {
        (f64::from(a) - f64::from(b), 0.0) // 2^-53 relative, 2^-29 of one f32 rounding
    }
}

impl Float for f64 {
    const NAME: &'static str = "float64";
    const COMPENSATE: bool = true;
    const K3_TERMS: usize = 26; // 2^28 / 28! = 9e-22, far below 2^-53

    fn widen(self) -> f64 {
        self
    }

    fn narrow(value: f64) -> Self {
        if value.is_nan() {
            Self::from_bits(0x7ff8_0000_0000_0000)
        } else {
            value
        }
    }

    fn difference(a: Self, b: Self) -> (f64, f64) {
        crate::compensated::two_difference(a, b)
    }
}
