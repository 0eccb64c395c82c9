//! NEON of 64-bit ARM: four registers hold sixteen `f32` or eight `f64`.
#![allow(unsafe_code)] // the intrinsics need their instructions; see `neon!`
#![allow(clippy::wildcard_imports)] // some eighty intrinsics of one family
#![allow(clippy::semicolon_if_nothing_returned)] // the macros serve stores and values alike

use std::arch::aarch64::*;

use super::lanes::{F32_LANES, F64_LANES, Kernel, Simd};
use super::wide::{Wide, WideMask};

/// NEON belongs to every 64-bit ARM target that Rust's standard library supports with `target_feature = "neon"`.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// Whether the machine has the instructions.
    pub(super) fn is_available() -> bool {
        std::arch::is_aarch64_feature_detected!("neon")
    }

    /// # Safety
    /// `is_available()` has returned true on this machine.
    pub(super) unsafe fn assume() -> Self {
        Self(())
    }
}

/// Compiles the kernel with the instructions and runs it.
#[inline]
pub(super) fn run<K: Kernel>(token: Neon, kernel: K) -> K::Output {
    #[target_feature(enable = "neon")]
    fn with_instructions<K: Kernel>(token: Neon, kernel: K) -> K::Output {
        kernel.run(token)
    }
    // SAFETY: the token exists only where the machine has the instructions.
    unsafe { with_instructions(token, kernel) }
}

/// Calls intrinsics of this instruction set.
macro_rules! neon {
    ($($body:tt)*) => {
        // SAFETY: registers and masks are made only by the unsafe functions of `Register`, whose callers hold the token.
        unsafe { $($body)* }
    };
}

mod registers; // after the macro that it uses

/// Calls what needs the token; `self` is one.
macro_rules! token {
    ($($body:tt)*) => {
        // SAFETY: the token exists only where the machine has the instructions; references to arrays of all lanes are
        // readable, and writable where they are exclusive.
        unsafe { $($body)* }
    };
}

impl Simd for Neon {
    type F32 = Wide<float32x4_t, 4>;
    type F64 = Wide<float64x2_t, 4>;
    type M32 = WideMask<float32x4_t, 4>;
    type M64 = WideMask<float64x2_t, 4>;

    #[inline(always)]
    fn f32(self, value: f32) -> Self::F32 {
        token!(Wide::splat(value))
    }
    #[inline(always)]
    fn f64(self, value: f64) -> Self::F64 {
        token!(Wide::splat(value))
    }
    #[inline(always)]
    fn load32(self, values: &[f32; F32_LANES]) -> Self::F32 {
        token!(Wide::load(values.as_ptr()))
    }
    #[inline(always)]
    fn load64(self, values: &[f64; F64_LANES]) -> Self::F64 {
        token!(Wide::load(values.as_ptr()))
    }
    #[inline(always)]
    fn load64_from32(self, values: &[f32; F64_LANES]) -> Self::F64 {
        token!(
            let low = vld1q_f32(values.as_ptr());
            let high = vld1q_f32(values.as_ptr().add(4));
            Wide([
                vcvt_f64_f32(vget_low_f32(low)),
                vcvt_high_f64_f32(low),
                vcvt_f64_f32(vget_low_f32(high)),
                vcvt_high_f64_f32(high),
            ])
        )
    }
    #[inline(always)]
    fn store64_to32(self, values: Self::F64, out: &mut [f32; F64_LANES]) {
        token!(
            let [a, b, c, d] = values.0;
            let to = out.as_mut_ptr();
            vst1q_f32(to, vcvt_high_f32_f64(vcvt_f32_f64(a), b));
            vst1q_f32(to.add(4), vcvt_high_f32_f64(vcvt_f32_f64(c), d));
        )
    }
    #[inline(always)]
    fn load32_upper(self, words: &[u16; F32_LANES]) -> Self::F32 {
        token!(
            let low = vld1q_u16(words.as_ptr());
            let high = vld1q_u16(words.as_ptr().add(8));
            Wide([
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(low))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(low)),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(high))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(high)),
            ])
        )
    }
    #[inline(always)]
    fn widen(self, values: Self::F32) -> (Self::F64, Self::F64) {
        token!(
            let [a, b, c, d] = values.0;
            (
                Wide([
                    vcvt_f64_f32(vget_low_f32(a)),
                    vcvt_high_f64_f32(a),
                    vcvt_f64_f32(vget_low_f32(b)),
                    vcvt_high_f64_f32(b),
                ]),
                Wide([
                    vcvt_f64_f32(vget_low_f32(c)),
                    vcvt_high_f64_f32(c),
                    vcvt_f64_f32(vget_low_f32(d)),
                    vcvt_high_f64_f32(d),
                ]),
            )
        )
    }
    #[inline(always)]
    fn narrow(self, low: Self::F64, high: Self::F64) -> Self::F32 {
        token!(
            let pair = |a, b| vcvt_high_f32_f64(vcvt_f32_f64(a), b);
            let ([a, b, c, d], [e, f, g, h]) = (low.0, high.0);
            Wide([pair(a, b), pair(c, d), pair(e, f), pair(g, h)])
        )
    }
    #[inline(always)]
    fn mask32(self, bits: u16) -> Self::M32 {
        token!(Wide::mask_from(u32::from(bits)))
    }
    #[inline(always)]
    fn mask64(self, bits: u8) -> Self::M64 {
        token!(Wide::mask_from(u32::from(bits)))
    }
    #[inline(always)]
    fn sums64(self, rows: &[Self::F64; F64_LANES]) -> Self::F64 {
        let [a, b, c, d, e, f, g, h] = rows.map(quarters);
        token!(Wide([
            vpaddq_f64(a, b),
            vpaddq_f64(c, d),
            vpaddq_f64(e, f),
            vpaddq_f64(g, h),
        ]))
    }
}

/// The lanes 0, 2, 4 and 6 of a row added up, and the lanes 1, 3, 5 and 7.
#[inline(always)]
fn quarters(row: Wide<float64x2_t, 4>) -> float64x2_t {
    let [a, c, e, g] = row.0;
    neon!(vaddq_f64(vaddq_f64(a, e), vaddq_f64(c, g)))
}
