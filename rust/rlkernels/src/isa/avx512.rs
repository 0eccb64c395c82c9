//! AVX-512 (F, DQ, BW, VL): one register holds sixteen `f32` or eight `f64`.
#![allow(unsafe_code)] // the intrinsics need their instructions; see `x86!`
#![allow(clippy::wildcard_imports)] // some eighty intrinsics of one family
#![allow(clippy::semicolon_if_nothing_returned)] // the macros serve stores and values alike

use std::arch::x86_64::*;

use super::lanes::{F32_LANES, F64_LANES, Kernel, Simd};
use super::wide::{Register, Wide, WideMask};

/// Proof that the machine has AVX-512 F, DQ, BW and VL, AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Whether the machine has the instructions.
    pub(super) fn is_available() -> bool {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f")
            && has!("avx512dq")
            && has!("avx512bw")
            && has!("avx512vl")
            && has!("avx2")
            && has!("fma")
            && has!("f16c")
            && has!("bmi1")
            && has!("bmi2")
            && has!("lzcnt")
            && has!("popcnt")
    }

    /// # Safety
    /// `is_available()` has returned true on this machine.
    pub(super) unsafe fn assume() -> Self {
        Self(())
    }
}

/// Compiles the kernel with the instructions and runs it.
#[inline]
pub(super) fn run<K: Kernel>(token: Avx512, kernel: K) -> K::Output {
    #[target_feature(
        enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
    )]
    fn with_instructions<K: Kernel>(token: Avx512, kernel: K) -> K::Output {
        kernel.run(token)
    }
    // SAFETY: the token exists only where the machine has the instructions.
    unsafe { with_instructions(token, kernel) }
}

/// Calls intrinsics of this instruction set.
macro_rules! x86 {
    ($($body:tt)*) => {
        // SAFETY: registers and masks are made only by the unsafe functions of `Register`, whose callers hold the token.
        unsafe { $($body)* }
    };
}

impl Register for __m512 {
    type Elem = f32;
    type Mask = __mmask16;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        x86!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        x86!(_mm512_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        x86!(_mm512_storeu_ps(to, self))
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        x86!(_mm512_add_ps(self, other))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        x86!(_mm512_sub_ps(self, other))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        x86!(_mm512_mul_ps(self, other))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        x86!(_mm512_div_ps(self, other))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        x86!(_mm512_xor_ps(self, _mm512_set1_ps(-0.0)))
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        x86!(_mm512_fmadd_ps(self, factor, term))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        x86!(_mm512_sqrt_ps(self))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        x86!(_mm512_andnot_ps(_mm512_set1_ps(-0.0), self))
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        x86!(_mm512_and_ps(self, other))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        x86!(_mm512_or_ps(self, other))
    }
    #[inline(always)]
    fn shift_left(self) -> Self {
        x86!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(
            _mm512_castps_si512(self)
        )))
    }
    #[inline(always)]
    fn shift_right(self) -> Self {
        x86!(_mm512_castsi512_ps(_mm512_srli_epi32::<23>(
            _mm512_castps_si512(self)
        )))
    }
    #[inline(always)]
    fn lt(self, other: Self) -> __mmask16 {
        x86!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self, other))
    }
    #[inline(always)]
    fn le(self, other: Self) -> __mmask16 {
        x86!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(self, other))
    }
    #[inline(always)]
    fn eq(self, other: Self) -> __mmask16 {
        x86!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self, other))
    }
    #[inline(always)]
    fn select(mask: __mmask16, yes: Self, no: Self) -> Self {
        x86!(_mm512_mask_blend_ps(mask, no, yes))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        x86!(_mm512_min_ps(self, other)) // the second operand where either is NaN or both are 0
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        x86!(_mm512_max_ps(self, other))
    }
    #[inline(always)]
    fn mask_and(a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }
    #[inline(always)]
    fn mask_or(a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn mask_not(a: __mmask16) -> __mmask16 {
        !a
    }
    #[inline(always)]
    fn mask_bits(a: __mmask16) -> u32 {
        u32::from(a)
    }
    #[inline(always)]
    unsafe fn mask_from(bits: u32) -> __mmask16 {
        bits as __mmask16
    }
}

impl Register for __m512d {
    type Elem = f64;
    type Mask = __mmask8;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        x86!(_mm512_set1_pd(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        x86!(_mm512_loadu_pd(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        x86!(_mm512_storeu_pd(to, self))
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        x86!(_mm512_add_pd(self, other))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        x86!(_mm512_sub_pd(self, other))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        x86!(_mm512_mul_pd(self, other))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        x86!(_mm512_div_pd(self, other))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        x86!(_mm512_xor_pd(self, _mm512_set1_pd(-0.0)))
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        x86!(_mm512_fmadd_pd(self, factor, term))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        x86!(_mm512_sqrt_pd(self))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        x86!(_mm512_andnot_pd(_mm512_set1_pd(-0.0), self))
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        x86!(_mm512_and_pd(self, other))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        x86!(_mm512_or_pd(self, other))
    }
    #[inline(always)]
    fn shift_left(self) -> Self {
        x86!(_mm512_castsi512_pd(_mm512_slli_epi64::<52>(
            _mm512_castpd_si512(self)
        )))
    }
    #[inline(always)]
    fn shift_right(self) -> Self {
        x86!(_mm512_castsi512_pd(_mm512_srli_epi64::<52>(
            _mm512_castpd_si512(self)
        )))
    }
    #[inline(always)]
    fn lt(self, other: Self) -> __mmask8 {
        x86!(_mm512_cmp_pd_mask::<_CMP_LT_OQ>(self, other))
    }
    #[inline(always)]
    fn le(self, other: Self) -> __mmask8 {
        x86!(_mm512_cmp_pd_mask::<_CMP_LE_OQ>(self, other))
    }
    #[inline(always)]
    fn eq(self, other: Self) -> __mmask8 {
        x86!(_mm512_cmp_pd_mask::<_CMP_EQ_OQ>(self, other))
    }
    #[inline(always)]
    fn select(mask: __mmask8, yes: Self, no: Self) -> Self {
        x86!(_mm512_mask_blend_pd(mask, no, yes))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        x86!(_mm512_min_pd(self, other)) // the second operand where either is NaN or both are 0
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        x86!(_mm512_max_pd(self, other))
    }
    #[inline(always)]
    fn mask_and(a: __mmask8, b: __mmask8) -> __mmask8 {
        a & b
    }
    #[inline(always)]
    fn mask_or(a: __mmask8, b: __mmask8) -> __mmask8 {
        a | b
    }
    #[inline(always)]
    fn mask_not(a: __mmask8) -> __mmask8 {
        !a
    }
    #[inline(always)]
    fn mask_bits(a: __mmask8) -> u32 {
        u32::from(a)
    }
    #[inline(always)]
    unsafe fn mask_from(bits: u32) -> __mmask8 {
        bits as __mmask8
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

impl Simd for Avx512 {
    type F32 = Wide<__m512, 1>;
    type F64 = Wide<__m512d, 1>;
    type M32 = WideMask<__m512, 1>;
    type M64 = WideMask<__m512d, 1>;

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
        token!(Wide([_mm512_cvtps_pd(_mm256_loadu_ps(values.as_ptr()))]))
    }
    #[inline(always)]
    fn store64_to32(self, values: Self::F64, out: &mut [f32; F64_LANES]) {
        token!(_mm256_storeu_ps(
            out.as_mut_ptr(),
            _mm512_cvtpd_ps(values.0[0])
        ))
    }
    #[inline(always)]
    fn load32_upper(self, words: &[u16; F32_LANES]) -> Self::F32 {
        token!(
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(words.as_ptr().cast()));
            Wide([_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))])
        )
    }
    #[inline(always)]
    fn widen(self, values: Self::F32) -> (Self::F64, Self::F64) {
        token!(
            let low = _mm512_cvtps_pd(_mm512_castps512_ps256(values.0[0]));
            let high = _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(values.0[0]));
            (Wide([low]), Wide([high]))
        )
    }
    #[inline(always)]
    fn narrow(self, low: Self::F64, high: Self::F64) -> Self::F32 {
        token!(
            let (low, high) = (_mm512_cvtpd_ps(low.0[0]), _mm512_cvtpd_ps(high.0[0]));
            Wide([_mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)])
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
        let [a, b, c, d, e, f, g, h] = rows.map(|row| row.0[0]);
        let even = quarters(halves(a, c), halves(e, g));
        let odd = quarters(halves(b, d), halves(f, h));
        token!(Wide([_mm512_add_pd(
            _mm512_unpacklo_pd(even, odd),
            _mm512_unpackhi_pd(even, odd),
        )]))
    }
}

/// The lower half of each row plus its upper half, side by side.
#[inline(always)]
fn halves(x: __m512d, y: __m512d) -> __m512d {
    x86!(_mm512_add_pd(
        _mm512_shuffle_f64x2::<0x44>(x, y),
        _mm512_shuffle_f64x2::<0xee>(x, y),
    ))
}

/// The even pairs of lanes of each row plus the odd ones, side by side.
#[inline(always)]
fn quarters(x: __m512d, y: __m512d) -> __m512d {
    x86!(_mm512_add_pd(
        _mm512_shuffle_f64x2::<0x88>(x, y),
        _mm512_shuffle_f64x2::<0xdd>(x, y),
    ))
}
