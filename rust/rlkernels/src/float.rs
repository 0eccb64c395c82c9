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
        /// The same slice where this is `f32`, for bodies in `f32` lanes.
        fn f32s(values: &[Self]) -> Option<&[f32]>;
        /// The same slice where this is `f32`.
        fn f32s_mut(values: &mut [Self]) -> Option<&mut [f32]>;
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
    fn f32s(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }
    fn f32s_mut(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
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
    fn f32s(_: &[Self]) -> Option<&[f32]> {
        None
    }
    fn f32s_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

/// `f32` or `f64`. Sealed: the kernels' accuracy is argued for these two types only.
pub trait Float: Copy + Send + Sync + sealed::Sealed + 'static {
    /// NumPy's name of the type, for messages.
    const NAME: &'static str;
    /// The value as `f64`, exactly.
    fn widen(self) -> f64;
    /// The nearest value of this type; a NaN becomes the positive quiet NaN, whatever machine made it.
    fn narrow(value: f64) -> Self;
}

impl Float for f32 {
    const NAME: &'static str = "float32";

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
}

impl Float for f64 {
    const NAME: &'static str = "float64";

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
}
