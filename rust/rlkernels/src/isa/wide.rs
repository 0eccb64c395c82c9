//! Vectors of one or more registers: an instruction set implements [`Register`], this file implements [`Lanes`] with it.
#![allow(clippy::expl_impl_clone_on_copy)] // a derived Clone would ask it of the register too
#![allow(clippy::needless_range_loop)] // several arrays are walked together
#![allow(unsafe_code)] // loads and stores of registers; every block says why it is sound

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

use super::lanes::{F32_LANES, F64_LANES, Lanes, Mask};

/// One register, or one number for the scalar variant. Private to the instruction sets: a register may only exist where
/// the machine has its instructions, on which the safety of all functions relies.
pub(crate) trait Register: Copy {
    type Elem: Copy;
    type Mask: Copy;
    const LANES: usize;

    /// # Safety
    /// The machine has the register's instructions.
    unsafe fn splat(value: Self::Elem) -> Self;
    /// # Safety
    /// The machine has the register's instructions and `LANES` elements are readable at `from`; no alignment is needed.
    unsafe fn load(from: *const Self::Elem) -> Self;
    /// # Safety
    /// `LANES` elements are writable at `to`; no alignment is needed.
    unsafe fn store(self, to: *mut Self::Elem);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn fma(self, factor: Self, term: Self) -> Self;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn shift_left(self) -> Self;
    fn shift_right(self) -> Self;
    fn lt(self, other: Self) -> Self::Mask;
    fn le(self, other: Self) -> Self::Mask;
    fn eq(self, other: Self) -> Self::Mask;
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// `self < other ? self : other`; x86 has one instruction for it, ARM's treats NaN and −0 in another way.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self::select(self.lt(other), self, other)
    }
    /// `self > other ? self : other`; as `min`.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self::select(other.lt(self), self, other)
    }
    fn mask_and(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn mask_or(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn mask_not(a: Self::Mask) -> Self::Mask;
    /// Bit i is lane i; the bits above the lanes are 0.
    fn mask_bits(a: Self::Mask) -> u32;
    /// # Safety
    /// The machine has the register's instructions.
    unsafe fn mask_from(bits: u32) -> Self::Mask;
}

/// `K` registers side by side.
#[derive(Clone, Copy)]
pub(crate) struct Wide<R, const K: usize>(pub(super) [R; K]);

/// The masks of `K` registers.
pub(crate) struct WideMask<R: Register, const K: usize>(pub(super) [R::Mask; K]);

impl<R: Register, const K: usize> Clone for WideMask<R, K> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Register, const K: usize> Copy for WideMask<R, K> {}

impl<R: Register, const K: usize> Wide<R, K> {
    /// # Safety
    /// The machine has the register's instructions.
    #[inline(always)]
    pub(super) unsafe fn splat(value: R::Elem) -> Self {
        // SAFETY: the caller's promise.
        Self([unsafe { R::splat(value) }; K])
    }

    /// # Safety
    /// The machine has the register's instructions and `K * LANES` elements are readable at `from`.
    #[inline(always)]
    pub(super) unsafe fn load(from: *const R::Elem) -> Self {
        // SAFETY: the caller's promise; register i starts at element i * LANES of K * LANES.
        let mut registers = [unsafe { R::load(from) }; K];
        for (i, register) in registers.iter_mut().enumerate().skip(1) {
            // SAFETY: as above.
            *register = unsafe { R::load(from.add(i * R::LANES)) };
        }
        Self(registers)
    }

    /// # Safety
    /// `K * LANES` elements are writable at `to`.
    #[inline(always)]
    pub(super) unsafe fn store(self, to: *mut R::Elem) {
        for (i, register) in self.0.into_iter().enumerate() {
            // SAFETY: the caller's promise; register i ends at element (i + 1) * LANES of K * LANES.
            unsafe { register.store(to.add(i * R::LANES)) };
        }
    }

    /// # Safety
    /// The machine has the register's instructions.
    #[inline(always)]
    pub(super) unsafe fn mask_from(bits: u32) -> WideMask<R, K> {
        let lanes = (1u32 << R::LANES) - 1;
        // SAFETY: the caller's promise.
        let mut masks = [unsafe { R::mask_from(bits & lanes) }; K];
        for (i, mask) in masks.iter_mut().enumerate().skip(1) {
            // SAFETY: the caller's promise.
            *mask = unsafe { R::mask_from((bits >> (i * R::LANES)) & lanes) };
        }
        WideMask(masks)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<R: Register, const K: usize> $trait for Wide<R, K> {
            type Output = Self;
            #[inline(always)]
            fn $method(mut self, other: Self) -> Self {
                for i in 0..K {
                    self.0[i] = self.0[i].$method(other.0[i]);
                }
                self
            }
        }
    };
}
operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);

impl<R: Register, const K: usize> Neg for Wide<R, K> {
    type Output = Self;
    #[inline(always)]
    fn neg(mut self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].neg();
        }
        self
    }
}

impl<R: Register, const K: usize> BitAnd for WideMask<R, K> {
    type Output = Self;
    #[inline(always)]
    fn bitand(mut self, other: Self) -> Self {
        for i in 0..K {
            self.0[i] = R::mask_and(self.0[i], other.0[i]);
        }
        self
    }
}

impl<R: Register, const K: usize> BitOr for WideMask<R, K> {
    type Output = Self;
    #[inline(always)]
    fn bitor(mut self, other: Self) -> Self {
        for i in 0..K {
            self.0[i] = R::mask_or(self.0[i], other.0[i]);
        }
        self
    }
}

impl<R: Register, const K: usize> Not for WideMask<R, K> {
    type Output = Self;
    #[inline(always)]
    fn not(mut self) -> Self {
        for i in 0..K {
            self.0[i] = R::mask_not(self.0[i]);
        }
        self
    }
}

impl<R: Register, const K: usize> Mask for WideMask<R, K> {
    #[inline(always)]
    fn bits(self) -> u32 {
        let mut bits = 0;
        for i in 0..K {
            bits |= R::mask_bits(self.0[i]) << (i * R::LANES);
        }
        bits
    }
}

/// An element type and the array of all lanes of a vector.
pub(crate) trait Element: Copy {
    /// All lanes of one vector.
    type Array: Copy;
    /// Where the lanes start; all of them are readable and writable there.
    fn start(array: &mut Self::Array) -> *mut Self;
    /// All lanes 0.
    const ZERO: Self::Array;
}

impl Element for f32 {
    type Array = [f32; F32_LANES];
    const ZERO: Self::Array = [0.0; F32_LANES];
    #[inline(always)]
    fn start(array: &mut Self::Array) -> *mut Self {
        array.as_mut_ptr()
    }
}

impl Element for f64 {
    type Array = [f64; F64_LANES];
    const ZERO: Self::Array = [0.0; F64_LANES];
    #[inline(always)]
    fn start(array: &mut Self::Array) -> *mut Self {
        array.as_mut_ptr()
    }
}

impl<R: Register, const K: usize> Lanes for Wide<R, K>
where
    R::Elem: Element,
{
    type Elem = R::Elem;
    type Array = <R::Elem as Element>::Array;
    type Mask = WideMask<R, K>;

    #[inline(always)]
    fn fma(mut self, factor: Self, term: Self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].fma(factor.0[i], term.0[i]);
        }
        self
    }

    #[inline(always)]
    fn sqrt(mut self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].sqrt();
        }
        self
    }

    #[inline(always)]
    fn abs(mut self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].abs();
        }
        self
    }

    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        let mut masks = [self.0[0].lt(other.0[0]); K];
        for i in 1..K {
            masks[i] = self.0[i].lt(other.0[i]);
        }
        WideMask(masks)
    }

    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        let mut masks = [self.0[0].le(other.0[0]); K];
        for i in 1..K {
            masks[i] = self.0[i].le(other.0[i]);
        }
        WideMask(masks)
    }

    #[inline(always)]
    fn eq(self, other: Self) -> Self::Mask {
        let mut masks = [self.0[0].eq(other.0[0]); K];
        for i in 1..K {
            masks[i] = self.0[i].eq(other.0[i]);
        }
        WideMask(masks)
    }

    #[inline(always)]
    fn and(mut self, other: Self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].and(other.0[i]);
        }
        self
    }

    #[inline(always)]
    fn or(mut self, other: Self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].or(other.0[i]);
        }
        self
    }

    #[inline(always)]
    fn shift_left(mut self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].shift_left();
        }
        self
    }

    #[inline(always)]
    fn shift_right(mut self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].shift_right();
        }
        self
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, mut no: Self) -> Self {
        for i in 0..K {
            no.0[i] = R::select(mask.0[i], yes.0[i], no.0[i]);
        }
        no
    }

    #[inline(always)]
    fn min(mut self, other: Self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].min(other.0[i]);
        }
        self
    }

    #[inline(always)]
    fn max(mut self, other: Self) -> Self {
        for i in 0..K {
            self.0[i] = self.0[i].max(other.0[i]);
        }
        self
    }

    #[inline(always)]
    fn array(self) -> Self::Array {
        let mut array = <R::Elem as Element>::ZERO;
        Lanes::store(self, &mut array);
        array
    }

    #[inline(always)]
    fn store(self, out: &mut Self::Array) {
        const { assert!(K * R::LANES * size_of::<R::Elem>() == size_of::<Self::Array>()) };
        // SAFETY: each instruction set makes `Wide` of K * LANES = 16 (f32) or 8 (f64) lanes, the length of the array;
        // the assertion above is decided at compile time.
        unsafe { Wide::store(self, R::Elem::start(out)) }
    }
}
