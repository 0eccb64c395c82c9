//! The two element types of the kernels and how each reaches its accuracy.

use crate::data::Data;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32` or `f64`. Sealed: the kernels' accuracy is argued for these two types only.
#[allow(private_bounds)] // `Data` speaks of lanes, which nobody outside can make: it seals the trait too
pub trait Float: Copy + Send + Sync + Data + sealed::Sealed + 'static {
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
