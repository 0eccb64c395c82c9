//! The fallback: one number at a time, the same bits as every other variant.
#![allow(unsafe_code)] // the trait's loads and stores; every block says why it is sound

use super::lanes::{F32_LANES, F64_LANES, Simd};
use super::wide::{Register, Wide, WideMask};

/// Present everywhere.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

macro_rules! number {
    ($float:ident, $mantissa:expr) => {
        impl Register for $float {
            type Elem = $float;
            type Mask = bool;
            const LANES: usize = 1;

            #[inline(always)]
            unsafe fn splat(value: $float) -> Self {
                value
            }
            #[inline(always)]
            unsafe fn load(from: *const $float) -> Self {
                // SAFETY: the caller promises one readable element.
                unsafe { from.read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $float) {
                // SAFETY: the caller promises one writable element.
                unsafe { to.write_unaligned(self) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }
            #[inline(always)]
            fn fma(self, factor: Self, term: Self) -> Self {
                self.mul_add(factor, term)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $float::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $float::abs(self)
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                $float::from_bits(self.to_bits() & other.to_bits())
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                $float::from_bits(self.to_bits() | other.to_bits())
            }
            #[inline(always)]
            fn shift_left(self) -> Self {
                $float::from_bits(self.to_bits() << $mantissa)
            }
            #[inline(always)]
            fn shift_right(self) -> Self {
                $float::from_bits(self.to_bits() >> $mantissa)
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self <= other
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn select(mask: bool, yes: Self, no: Self) -> Self {
                if mask { yes } else { no }
            }
            #[inline(always)]
            fn mask_and(a: bool, b: bool) -> bool {
                a & b
            }
            #[inline(always)]
            fn mask_or(a: bool, b: bool) -> bool {
                a | b
            }
            #[inline(always)]
            fn mask_not(a: bool) -> bool {
                !a
            }
            #[inline(always)]
            fn mask_bits(a: bool) -> u32 {
                u32::from(a)
            }
            #[inline(always)]
            unsafe fn mask_from(bits: u32) -> bool {
                bits != 0
            }
        }
    };
}
number!(f32, 23);
number!(f64, 52);

// SAFETY (all blocks below): plain numbers need no special instructions, and the arrays hold all lanes.
impl Simd for Scalar {
    type F32 = Wide<f32, F32_LANES>;
    type F64 = Wide<f64, F64_LANES>;
    type M32 = WideMask<f32, F32_LANES>;
    type M64 = WideMask<f64, F64_LANES>;

    #[inline(always)]
    fn f32(self, value: f32) -> Self::F32 {
        Wide([value; F32_LANES])
    }
    #[inline(always)]
    fn f64(self, value: f64) -> Self::F64 {
        Wide([value; F64_LANES])
    }
    #[inline(always)]
    fn load32(self, values: &[f32; F32_LANES]) -> Self::F32 {
        Wide(*values)
    }
    #[inline(always)]
    fn load64(self, values: &[f64; F64_LANES]) -> Self::F64 {
        Wide(*values)
    }
    #[inline(always)]
    fn load64_from32(self, values: &[f32; F64_LANES]) -> Self::F64 {
        Wide(values.map(f64::from))
    }
    #[inline(always)]
    fn store64_to32(self, values: Self::F64, out: &mut [f32; F64_LANES]) {
        *out = values.0.map(|x| x as f32);
    }
    #[inline(always)]
    fn load32_upper(self, words: &[u16; F32_LANES]) -> Self::F32 {
        Wide(words.map(|word| f32::from_bits(u32::from(word) << 16)))
    }
    #[inline(always)]
    fn widen(self, values: Self::F32) -> (Self::F64, Self::F64) {
        let part = |start: usize| std::array::from_fn(|i| f64::from(values.0[start + i]));
        (Wide(part(0)), Wide(part(F64_LANES)))
    }
    #[inline(always)]
    fn narrow(self, low: Self::F64, high: Self::F64) -> Self::F32 {
        Wide(std::array::from_fn(|i| {
            (if i < F64_LANES {
                low.0[i]
            } else {
                high.0[i - F64_LANES]
            }) as f32
        }))
    }
    #[inline(always)]
    fn mask32(self, bits: u16) -> Self::M32 {
        WideMask(std::array::from_fn(|i| bits >> i & 1 != 0))
    }
    #[inline(always)]
    fn mask64(self, bits: u8) -> Self::M64 {
        WideMask(std::array::from_fn(|i| bits >> i & 1 != 0))
    }
    #[inline(always)]
    fn sums64(self, rows: &[Self::F64; F64_LANES]) -> Self::F64 {
        Wide(rows.map(|row| super::lanes::tree64(row.0)))
    }
}
