//! Double-double arithmetic: error-free transformations, numbers of twice the precision, and the compensated sum.
//!
//! Source: Ogita, Rump and Oishi, "Accurate Sum and Dot Product" (2005).

use std::ops::{Add, Sub};

use crate::isa::{F64_LANES, Lanes, Simd};
use crate::math::exp64_sum;

/// `a + b` as `(sum, error)`, exact unless the sum overflows (Knuth's `TwoSum`); of numbers or of lanes.
#[inline(always)]
pub(crate) fn two_sum<N: Copy + Add<Output = N> + Sub<Output = N>>(a: N, b: N) -> (N, N) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// `a − b` as `(difference, error)`, exact unless the difference overflows; the error is then NaN.
#[inline(always)]
pub(crate) fn two_difference<L: Lanes>(a: L, b: L) -> (L, L) {
    let difference = a - b;
    let part = difference - a;
    (difference, (a - (difference - part)) - (b + part))
}

/// `high + low`, unevaluated. For `f32` data the low part is neither computed nor read.
#[derive(Clone, Copy)]
pub(crate) struct Double<N> {
    pub(crate) high: N,
    pub(crate) low: N,
}

impl<L: Lanes<Elem = f64, Array = [f64; F64_LANES]>> Double<L> {
    /// 0 in every lane.
    #[inline(always)]
    pub(crate) fn zero<S: Simd<F64 = L>>(s: S) -> Self {
        let (high, low) = (s.f64(0.0), s.f64(0.0));
        Self { high, low }
    }

    /// The sum with `term`: one step of a compensated sum in every lane.
    #[inline(always)]
    pub(crate) fn plus(self, term: L) -> Self {
        let (high, error) = two_sum(self.high, term);
        Self {
            high,
            low: self.low + error,
        }
    }

    /// The sum of all lanes in order, the high parts first. Low parts that are not finite are left out: an infinite term
    /// has no rounding error.
    #[inline(always)]
    pub(crate) fn total(self) -> Double<f64> {
        let mut sum = Sum::default();
        let low = self.low.array().into_iter().filter(|low| low.is_finite());
        for term in self.high.array().into_iter().chain(low) {
            sum.add(term);
        }
        sum.double()
    }
}

impl Double<f64> {
    pub(crate) fn value(self) -> f64 {
        self.high + self.low
    }

    /// Divided by a whole number, to twice the precision.
    pub(crate) fn over(self, count: usize) -> Self {
        let count = count as f64;
        let high = self.high / count;
        let low = ((-high).mul_add(count, self.high) + self.low) / count; // exact: the remainder of a division fits
        Self {
            high,
            low: if low.is_finite() { low } else { 0.0 },
        }
    }

    /// e to the power of it.
    #[inline(always)]
    pub(crate) fn exp<S: Simd>(self, s: S) -> f64 {
        exp64_sum(s, s.f64(self.high), s.f64(self.low)).array()[0]
    }
}

/// A compensated running sum, as if computed in twice the precision and rounded once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    #[inline]
    pub(crate) fn add(&mut self, term: f64) {
        let (high, error) = two_sum(self.high, term);
        self.high = high;
        self.low += error;
    }

    /// Adds the high part, then the low part.
    #[inline]
    pub(crate) fn add_double(&mut self, term: Double<f64>) {
        self.add(term.high);
        self.add(term.low);
    }

    /// The sum in twice the precision; the low part is 0 after an overflow or an infinite term.
    #[inline]
    pub(crate) fn double(self) -> Double<f64> {
        Double {
            high: self.high,
            low: if self.low.is_finite() { self.low } else { 0.0 },
        }
    }

    #[inline]
    pub(crate) fn value(self) -> f64 {
        self.double().value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compensated_sum_keeps_what_a_plain_one_loses() {
        let terms = [1.0, 1e100, 1.0, -1e100]; // exact sum 2
        let mut compensated = Sum::default();
        for term in terms {
            compensated.add(term);
        }
        let plain: f64 = terms.into_iter().sum();
        assert_eq!((compensated.value(), plain), (2.0, 0.0));
    }
}
