//! The registers of NEON: what each operation of a lane is.

use std::arch::aarch64::*;

use crate::isa::wide::Register;

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
