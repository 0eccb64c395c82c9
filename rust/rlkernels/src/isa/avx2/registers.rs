//! The registers of AVX2: what each operation of a lane is.

use std::arch::x86_64::*;

use crate::isa::wide::Register;

impl Register for __m256 {
    type Elem = f32;
    type Mask = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        x86!(_mm256_set1_ps(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        x86!(_mm256_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        x86!(_mm256_storeu_ps(to, self))
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        x86!(_mm256_add_ps(self, other))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        x86!(_mm256_sub_ps(self, other))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        x86!(_mm256_mul_ps(self, other))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        x86!(_mm256_div_ps(self, other))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        x86!(_mm256_xor_ps(self, _mm256_set1_ps(-0.0)))
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        x86!(_mm256_fmadd_ps(self, factor, term))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        x86!(_mm256_sqrt_ps(self))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        x86!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), self))
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        x86!(_mm256_and_ps(self, other))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        x86!(_mm256_or_ps(self, other))
    }
    #[inline(always)]
    fn shift_left(self) -> Self {
        x86!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(
            _mm256_castps_si256(self)
        )))
    }
    #[inline(always)]
    fn shift_right(self) -> Self {
        x86!(_mm256_castsi256_ps(_mm256_srli_epi32::<23>(
            _mm256_castps_si256(self)
        )))
    }
    #[inline(always)]
    fn lt(self, other: Self) -> __m256 {
        x86!(_mm256_cmp_ps::<_CMP_LT_OQ>(self, other))
    }
    #[inline(always)]
    fn le(self, other: Self) -> __m256 {
        x86!(_mm256_cmp_ps::<_CMP_LE_OQ>(self, other))
    }
    #[inline(always)]
    fn eq(self, other: Self) -> __m256 {
        x86!(_mm256_cmp_ps::<_CMP_EQ_OQ>(self, other))
    }
    #[inline(always)]
    fn select(mask: __m256, yes: Self, no: Self) -> Self {
        x86!(_mm256_blendv_ps(no, yes, mask))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        x86!(_mm256_min_ps(self, other)) // the second operand where either is NaN or both are 0
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        x86!(_mm256_max_ps(self, other))
    }
    #[inline(always)]
    fn mask_and(a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_and_ps(a, b))
    }
    #[inline(always)]
    fn mask_or(a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_or_ps(a, b))
    }
    #[inline(always)]
    fn mask_not(a: __m256) -> __m256 {
        x86!(_mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))))
    }
    #[inline(always)]
    fn mask_bits(a: __m256) -> u32 {
        x86!(_mm256_movemask_ps(a) as u32)
    }
    #[inline(always)]
    unsafe fn mask_from(bits: u32) -> __m256 {
        x86!(
            let lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let bits = _mm256_and_si256(_mm256_set1_epi32(bits as i32), lane);
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, lane))
        )
    }
}

impl Register for __m256d {
    type Elem = f64;
    type Mask = __m256d;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        x86!(_mm256_set1_pd(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        x86!(_mm256_loadu_pd(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        x86!(_mm256_storeu_pd(to, self))
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        x86!(_mm256_add_pd(self, other))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        x86!(_mm256_sub_pd(self, other))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        x86!(_mm256_mul_pd(self, other))
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        x86!(_mm256_div_pd(self, other))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        x86!(_mm256_xor_pd(self, _mm256_set1_pd(-0.0)))
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        x86!(_mm256_fmadd_pd(self, factor, term))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        x86!(_mm256_sqrt_pd(self))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        x86!(_mm256_andnot_pd(_mm256_set1_pd(-0.0), self))
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        x86!(_mm256_and_pd(self, other))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        x86!(_mm256_or_pd(self, other))
    }
    #[inline(always)]
    fn shift_left(self) -> Self {
        x86!(_mm256_castsi256_pd(_mm256_slli_epi64::<52>(
            _mm256_castpd_si256(self)
        )))
    }
    #[inline(always)]
    fn shift_right(self) -> Self {
        x86!(_mm256_castsi256_pd(_mm256_srli_epi64::<52>(
            _mm256_castpd_si256(self)
        )))
    }
    #[inline(always)]
    fn lt(self, other: Self) -> __m256d {
        x86!(_mm256_cmp_pd::<_CMP_LT_OQ>(self, other))
    }
    #[inline(always)]
    fn le(self, other: Self) -> __m256d {
        x86!(_mm256_cmp_pd::<_CMP_LE_OQ>(self, other))
    }
    #[inline(always)]
    fn eq(self, other: Self) -> __m256d {
        x86!(_mm256_cmp_pd::<_CMP_EQ_OQ>(self, other))
    }
    #[inline(always)]
    fn select(mask: __m256d, yes: Self, no: Self) -> Self {
        x86!(_mm256_blendv_pd(no, yes, mask))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        x86!(_mm256_min_pd(self, other)) // the second operand where either is NaN or both are 0
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        x86!(_mm256_max_pd(self, other))
    }
    #[inline(always)]
    fn mask_and(a: __m256d, b: __m256d) -> __m256d {
        x86!(_mm256_and_pd(a, b))
    }
    #[inline(always)]
    fn mask_or(a: __m256d, b: __m256d) -> __m256d {
        x86!(_mm256_or_pd(a, b))
    }
    #[inline(always)]
    fn mask_not(a: __m256d) -> __m256d {
        x86!(_mm256_xor_pd(
            a,
            _mm256_castsi256_pd(_mm256_set1_epi64x(-1))
        ))
    }
    #[inline(always)]
    fn mask_bits(a: __m256d) -> u32 {
        x86!(_mm256_movemask_pd(a) as u32)
    }
    #[inline(always)]
    unsafe fn mask_from(bits: u32) -> __m256d {
        x86!(
            let lane = _mm256_setr_epi64x(1, 2, 4, 8);
            let bits = _mm256_and_si256(_mm256_set1_epi64x(i64::from(bits)), lane);
            _mm256_castsi256_pd(_mm256_cmpeq_epi64(bits, lane))
        )
    }
}
