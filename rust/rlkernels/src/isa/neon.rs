//! NEON of 64-bit ARM: four registers hold sixteen `f32` or eight `f64`.
#![allow(unsafe_code)] // the intrinsics need their instructions; see `neon!`
#![allow(clippy::wildcard_imports)] // some eighty intrinsics of one family
#![allow(clippy::semicolon_if_nothing_returned)] // the macros serve stores and values alike

use std::arch::aarch64::*;

use super::Kernel;
use super::lanes::{F32_LANES, F64_LANES, Simd};
use super::wide::{Register, Wide, WideMask};

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

impl Register for float32x4_t {
    type Elem = f32;
    type Mask = uint32x4_t;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        neon!(vdupq_n_f32(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        neon!(vld1q_f32(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        neon!(vst1q_f32(to, self))
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        neon!(vaddq_f32(self, other))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        neon!(vsubq_f32(self, other))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        neon!(vmulq_f32(self, other))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        neon!(vdivq_f32(self, other))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        neon!(vnegq_f32(self))
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        neon!(vfmaq_f32(term, self, factor))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        neon!(vsqrtq_f32(self))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        neon!(vabsq_f32(self))
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        neon!(vreinterpretq_f32_u32(vandq_u32(
            vreinterpretq_u32_f32(self),
            vreinterpretq_u32_f32(other)
        )))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        neon!(vreinterpretq_f32_u32(vorrq_u32(
            vreinterpretq_u32_f32(self),
            vreinterpretq_u32_f32(other)
        )))
    }
    #[inline(always)]
    fn shift_left(self) -> Self {
        neon!(vreinterpretq_f32_u32(vshlq_n_u32::<23>(
            vreinterpretq_u32_f32(self)
        )))
    }
    #[inline(always)]
    fn shift_right(self) -> Self {
        neon!(vreinterpretq_f32_u32(vshrq_n_u32::<23>(
            vreinterpretq_u32_f32(self)
        )))
    }
    #[inline(always)]
    fn lt(self, other: Self) -> uint32x4_t {
        neon!(vcltq_f32(self, other))
    }
    #[inline(always)]
    fn le(self, other: Self) -> uint32x4_t {
        neon!(vcleq_f32(self, other))
    }
    #[inline(always)]
    fn eq(self, other: Self) -> uint32x4_t {
        neon!(vceqq_f32(self, other))
    }
    #[inline(always)]
    fn select(mask: uint32x4_t, yes: Self, no: Self) -> Self {
        neon!(vbslq_f32(mask, yes, no))
    }
    #[inline(always)]
    fn mask_and(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        neon!(vandq_u32(a, b))
    }
    #[inline(always)]
    fn mask_or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        neon!(vorrq_u32(a, b))
    }
    #[inline(always)]
    fn mask_not(a: uint32x4_t) -> uint32x4_t {
        neon!(veorq_u32(a, vdupq_n_u32(u32::MAX)))
    }
    #[inline(always)]
    fn mask_bits(a: uint32x4_t) -> u32 {
        const LANE: [u32; 4] = [1, 2, 4, 8];
        neon!(vaddvq_u32(vandq_u32(a, vld1q_u32(LANE.as_ptr()))) as u32)
    }
    #[inline(always)]
    unsafe fn mask_from(bits: u32) -> uint32x4_t {
        const LANE: [u32; 4] = [1, 2, 4, 8];
        neon!(vtstq_u32(
            vdupq_n_u32(u32::from(bits)),
            vld1q_u32(LANE.as_ptr())
        ))
    }
}

impl Register for float64x2_t {
    type Elem = f64;
    type Mask = uint64x2_t;
    const LANES: usize = 2;

    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        neon!(vdupq_n_f64(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        neon!(vld1q_f64(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        neon!(vst1q_f64(to, self))
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        neon!(vaddq_f64(self, other))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        neon!(vsubq_f64(self, other))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        neon!(vmulq_f64(self, other))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        neon!(vdivq_f64(self, other))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        neon!(vnegq_f64(self))
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        neon!(vfmaq_f64(term, self, factor))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        neon!(vsqrtq_f64(self))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        neon!(vabsq_f64(self))
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        neon!(vreinterpretq_f64_u64(vandq_u64(
            vreinterpretq_u64_f64(self),
            vreinterpretq_u64_f64(other)
        )))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        neon!(vreinterpretq_f64_u64(vorrq_u64(
            vreinterpretq_u64_f64(self),
            vreinterpretq_u64_f64(other)
        )))
    }
    #[inline(always)]
    fn shift_left(self) -> Self {
        neon!(vreinterpretq_f64_u64(vshlq_n_u64::<52>(
            vreinterpretq_u64_f64(self)
        )))
    }
    #[inline(always)]
    fn shift_right(self) -> Self {
        neon!(vreinterpretq_f64_u64(vshrq_n_u64::<52>(
            vreinterpretq_u64_f64(self)
        )))
    }
    #[inline(always)]
    fn lt(self, other: Self) -> uint64x2_t {
        neon!(vcltq_f64(self, other))
    }
    #[inline(always)]
    fn le(self, other: Self) -> uint64x2_t {
        neon!(vcleq_f64(self, other))
    }
    #[inline(always)]
    fn eq(self, other: Self) -> uint64x2_t {
        neon!(vceqq_f64(self, other))
    }
    #[inline(always)]
    fn select(mask: uint64x2_t, yes: Self, no: Self) -> Self {
        neon!(vbslq_f64(mask, yes, no))
    }
    #[inline(always)]
    fn mask_and(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
        neon!(vandq_u64(a, b))
    }
    #[inline(always)]
    fn mask_or(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
        neon!(vorrq_u64(a, b))
    }
    #[inline(always)]
    fn mask_not(a: uint64x2_t) -> uint64x2_t {
        neon!(veorq_u64(a, vdupq_n_u64(u64::MAX)))
    }
    #[inline(always)]
    fn mask_bits(a: uint64x2_t) -> u32 {
        const LANE: [u64; 2] = [1, 2];
        neon!(vaddvq_u64(vandq_u64(a, vld1q_u64(LANE.as_ptr()))) as u32)
    }
    #[inline(always)]
    unsafe fn mask_from(bits: u32) -> uint64x2_t {
        const LANE: [u64; 2] = [1, 2];
        neon!(vtstq_u64(
            vdupq_n_u64(u64::from(bits)),
            vld1q_u64(LANE.as_ptr())
        ))
    }
}

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
