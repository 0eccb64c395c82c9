//! The two element types in lanes of `f64`: how each is loaded and stored, and the arithmetic that it needs.
//!
//! For `f32` data a rounding in `f64` is 2⁻²⁹ of one of `f32`, so exponentials are short and sums are plain. For `f64` data
//! the rounding error of a difference is kept for the exponential, and sums are compensated.

use crate::double::{Double, two_difference};
use crate::isa::{F64_LANES, Lanes, Simd, tree64};
use crate::math::{exp64_sum, expm1_short};

/// e^x, e^x − 1 and e^x − 1 − x, each with its own relative accuracy.
#[derive(Clone, Copy)]
pub(crate) struct Growth<L> {
    pub(crate) exp: L,
    pub(crate) expm1: L,
    pub(crate) k3: L,
}

/// An element type of the kernels. Sealed: accuracy is proven for `f32` and `f64` only.
pub(crate) trait Data: Copy + Default + Send + Sync + 'static {
    /// Whether sums are compensated and differences keep their rounding error.
    const EXACT: bool;

    /// Eight elements, exactly.
    fn load<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64;
    /// Eight lanes, each rounded once.
    fn store<S: Simd>(s: S, values: S::F64, out: &mut [Self; F64_LANES]);
    /// `a − b`; the low part is 0 if it overflows.
    fn minus<S: Simd>(s: S, a: S::F64, b: S::F64) -> Double<S::F64>;
    /// e^x: +inf on overflow. The result for NaN is unspecified.
    fn exp<S: Simd>(s: S, x: Double<S::F64>) -> S::F64;
    /// e^x, e^x − 1 and e^x − 1 − x. An infinite x gives the limits; the result for NaN is unspecified.
    fn growth<S: Simd>(s: S, x: Double<S::F64>) -> Growth<S::F64>;
}

impl Data for f32 {
    const EXACT: bool = false;

    #[inline(always)]
    fn load<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64 {
        s.load64_from32(values)
    }

    #[inline(always)]
    fn store<S: Simd>(s: S, values: S::F64, out: &mut [Self; F64_LANES]) {
        s.store64_to32(values, out);
    }

    #[inline(always)]
    fn minus<S: Simd>(s: S, a: S::F64, b: S::F64) -> Double<S::F64> {
        let low = s.f64(0.0);
        Double { high: a - b, low }
    }

    #[inline(always)]
    fn exp<S: Simd>(s: S, x: Double<S::F64>) -> S::F64 {
        let (_, half, less, _) = expm1_short(s, x.high);
        less.fma(s.f64(2.0), s.f64(2.0)) * half // one operation instead of the two of `growth`, and the same bits
    }

    #[inline(always)]
    fn growth<S: Simd>(s: S, x: Double<S::F64>) -> Growth<S::F64> {
        let (is_near, half, less, tail) = expm1_short(s, x.high);
        let mantissa = s.f64(1.0) + less; // sums: multipliers have enough to do here
        let exp = (mantissa + mantissa) * half;
        let far = exp - s.f64(1.0); // at least 0.4 in magnitude: no cancellation
        let infinite = exp.eq(s.f64(f64::INFINITY));
        let rest = S::F64::select(infinite, exp, far - x.high);
        Growth {
            exp,
            expm1: S::F64::select(is_near, x.high + tail, far),
            k3: S::F64::select(is_near, tail, rest),
        }
    }
}

/// The largest |d| for which the series of k3 is used; above it exp(d) − 1 − d loses 2u at most.
const SERIES_LIMIT: f64 = 2.0;

/// 1/2!, 1/3!, … 1/27!: the first term left out is 2²⁶/28! · d² = 2e-22 · d² on |d| ≤ 2.
const INVERSE_FACTORIALS: [f64; 26] = {
    let mut table = [0.5; 26];
    let mut factorial = 2.0;
    let mut k = 1;
    while k < table.len() {
        factorial *= (k + 2) as f64; // exact up to 22!; the later terms are below 1e-16 of the sum
        table[k] = 1.0 / factorial;
        k += 1;
    }
    table
};

impl Data for f64 {
    const EXACT: bool = true;

    #[inline(always)]
    fn load<S: Simd>(s: S, values: &[Self; F64_LANES]) -> S::F64 {
        s.load64(values)
    }

    #[inline(always)]
    fn store<S: Simd>(_: S, values: S::F64, out: &mut [Self; F64_LANES]) {
        values.store(out);
    }

    #[inline(always)]
    fn minus<S: Simd>(s: S, a: S::F64, b: S::F64) -> Double<S::F64> {
        let (high, low) = two_difference(a, b);
        let low = finite_or_zero(s, low);
        Double { high, low }
    }

    #[inline(always)]
    fn exp<S: Simd>(s: S, x: Double<S::F64>) -> S::F64 {
        exp64_sum(s, x.high, x.low)
    }

    #[inline(always)]
    fn growth<S: Simd>(s: S, x: Double<S::F64>) -> Growth<S::F64> {
        let (one, d) = (s.f64(1.0), x.high);
        let exp = exp64_sum(s, d, x.low);
        let near = d.abs().le(s.f64(SERIES_LIMIT));
        let inside = S::F64::select(near, d, s.f64(0.0)); // no overflow in lanes that are not used
        let mut tail = s.f64(INVERSE_FACTORIALS[25]);
        for &c in INVERSE_FACTORIALS[..25].iter().rev() {
            tail = tail.fma(inside, s.f64(c));
        }
        let series = inside * inside * tail;
        let series = x.low.fma(series + inside, series); // k3′(d) = exp(d) − 1 = k3(d) + d
        let far = exp - one;
        let infinite = exp.eq(s.f64(f64::INFINITY));
        let rest = S::F64::select(infinite, exp, (far - d) - x.low);
        Growth {
            exp,
            expm1: S::F64::select(near, (series + x.low) + d, far),
            k3: S::F64::select(near, series, rest),
        }
    }
}

/// `low`, or 0 where it is not finite.
#[inline(always)]
fn finite_or_zero<S: Simd>(s: S, low: S::F64) -> S::F64 {
    let zero = s.f64(0.0);
    S::F64::select((low * zero).eq(zero), low, zero)
}

/// A running sum per lane; compensated where the data needs it.
#[derive(Clone, Copy)]
pub(crate) struct Sums<L>(Double<L>);

impl<L: Lanes<Elem = f64, Array = [f64; F64_LANES]>> Sums<L> {
    #[inline(always)]
    pub(crate) fn new<S: Simd<F64 = L>>(s: S) -> Self {
        Self(Double::zero(s))
    }

    #[inline(always)]
    pub(crate) fn add<T: Data>(&mut self, term: L) {
        if T::EXACT {
            self.0 = self.0.plus(term);
        } else {
            self.0.high = self.0.high + term;
        }
    }

    /// Adds a number of twice the precision.
    #[inline(always)]
    pub(crate) fn add_double<T: Data>(&mut self, term: Double<L>) {
        self.add::<T>(term.high);
        if T::EXACT {
            self.0.low = self.0.low + term.low;
        }
    }

    /// The sum over the lanes, in the one order that every kernel uses.
    #[inline(always)]
    pub(crate) fn total<T: Data>(self) -> Double<f64> {
        if T::EXACT {
            return self.0.total();
        }
        Double {
            high: tree64(self.0.high.array()),
            low: 0.0,
        }
    }
}
