//! The two element types of the kernels, `f32` and `f64`.

use crate::data::Data;

mod sealed {
    /// Access to slices whose element type is known to be `f32`.
    pub trait Sealed: Sized {
        /// The slice itself if this type is `f32`, for kernels in `f32` lanes.
        fn f32s(values: &[Self]) -> Option<&[f32]>;
        /// The slice itself if this type is `f32`.
        fn f32s_mut(values: &mut [Self]) -> Option<&mut [f32]>;
    }
}

#[allow(private_bounds, private_interfaces)] // as the trait
impl sealed::Sealed for f32 {
    fn f32s(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }
    fn f32s_mut(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
    }
}

#[allow(private_bounds, private_interfaces)] // as the trait
impl sealed::Sealed for f64 {
    fn f32s(_: &[Self]) -> Option<&[f32]> {
        None
    }
    fn f32s_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

/// `f32` or `f64`. Sealed: the kernels' accuracy is argued for these two types only.
#[allow(private_bounds)] // `Data` is private, which seals the trait too
pub trait Float: Copy + Send + Sync + Data + sealed::Sealed + 'static {
    /// NumPy's name of the type, for messages.
    const NAME: &'static str;
    /// The value as `f64`, exactly.
    fn widen(self) -> f64;
    /// The nearest value of this type; every NaN becomes the positive quiet NaN.
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
