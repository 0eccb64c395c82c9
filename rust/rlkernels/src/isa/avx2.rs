//! AVX2 with FMA: two registers hold sixteen `f32` or eight `f64`.
#![allow(unsafe_code)] // the intrinsics need their instructions; see `x86!`
#![allow(clippy::wildcard_imports)] // some eighty intrinsics of one family
#![allow(clippy::semicolon_if_nothing_returned)] // the macros serve stores and values alike

use std::arch::x86_64::*;

use super::lanes::{F32_LANES, F64_LANES, Kernel, Simd};
use super::wide::{Wide, WideMask};

/// Proof that the machine has AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Whether the machine has the instructions.
    pub(super) fn is_available() -> bool {
        use std::arch::is_x86_feature_detected as has;
        has!("avx2")
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
pub(super) fn run<K: Kernel>(token: Avx2, kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
    fn with_instructions<K: Kernel>(token: Avx2, kernel: K) -> K::Output {
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

mod registers; // after the macro that it uses

/// Calls what needs the token; `self` is one.
macro_rules! token {
    ($($body:tt)*) => {
        // SAFETY: the token exists only where the machine has the instructions; references to arrays of all lanes are
        // readable, and writable where they are exclusive.
        unsafe { $($body)* }
    };
}

impl Simd for Avx2 {
    type F32 = Wide<__m256, 2>;
    type F64 = Wide<__m256d, 2>;
    type M32 = WideMask<__m256, 2>;
    type M64 = WideMask<__m256d, 2>;

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
            let from = values.as_ptr();
            Wide([
                _mm256_cvtps_pd(_mm_loadu_ps(from)),
                _mm256_cvtps_pd(_mm_loadu_ps(from.add(4))),
            ])
        )
    }
    #[inline(always)]
    fn store64_to32(self, values: Self::F64, out: &mut [f32; F64_LANES]) {
        token!(
            let to = out.as_mut_ptr();
            _mm_storeu_ps(to, _mm256_cvtpd_ps(values.0[0]));
            _mm_storeu_ps(to.add(4), _mm256_cvtpd_ps(values.0[1]));
        )
    }
    #[inline(always)]
    fn load32_upper(self, words: &[u16; F32_LANES]) -> Self::F32 {
        token!(
            let from = words.as_ptr();
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast()));
            Wide([
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            ])
        )
    }
    #[inline(always)]
    fn widen(self, values: Self::F32) -> (Self::F64, Self::F64) {
        token!(
            let [low, high] = values.0;
            (
                Wide([
                    _mm256_cvtps_pd(_mm256_castps256_ps128(low)),
                    _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(low)),
                ]),
                Wide([
                    _mm256_cvtps_pd(_mm256_castps256_ps128(high)),
                    _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(high)),
                ]),
            )
        )
    }
    #[inline(always)]
    fn narrow(self, low: Self::F64, high: Self::F64) -> Self::F32 {
        token!(Wide([
            _mm256_set_m128(_mm256_cvtpd_ps(low.0[1]), _mm256_cvtpd_ps(low.0[0])),
            _mm256_set_m128(_mm256_cvtpd_ps(high.0[1]), _mm256_cvtpd_ps(high.0[0])),
        ]))
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
        let [a, b, c, d, e, f, g, h] = rows.map(halves);
        Wide([four(a, b, c, d), four(e, f, g, h)])
    }
}

/// The lower half of a row plus its upper half.
#[inline(always)]
fn halves(row: Wide<__m256d, 2>) -> __m256d {
    x86!(_mm256_add_pd(row.0[0], row.0[1]))
}

/// The lower half of each register plus its upper half, side by side.
#[inline(always)]
fn quarters(x: __m256d, y: __m256d) -> __m256d {
    x86!(_mm256_add_pd(
        _mm256_permute2f128_pd::<0x20>(x, y),
        _mm256_permute2f128_pd::<0x31>(x, y),
    ))
}

/// The sums of four registers.
#[inline(always)]
fn four(a: __m256d, b: __m256d, c: __m256d, d: __m256d) -> __m256d {
    let (even, odd) = (quarters(a, c), quarters(b, d));
    x86!(_mm256_add_pd(
        _mm256_unpacklo_pd(even, odd),
        _mm256_unpackhi_pd(even, odd),
    ))
}
