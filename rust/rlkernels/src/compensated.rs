//! Error-free transformations and the compensated sum (Ogita, Rump, Oishi: "Accurate Sum and Dot Product", 2005).

use crate::isa::{F64_LANES, Lanes};

/// `a + b` as `(sum, error)`, exact unless the sum overflows (Knuth's `TwoSum`).
#[inline]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// A running sum: compensated where `COMPENSATE`, as if computed in twice the precision; plain otherwise.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum<const COMPENSATE: bool> {
    high: f64,
    low: f64,
}

impl<const COMPENSATE: bool> Sum<COMPENSATE> {
    #[inline]
    pub(crate) fn add(&mut self, term: f64) {
        if COMPENSATE {
            let (high, error) = two_sum(self.high, term);
            self.high = high;
            self.low += error;
        } else {
            self.high += term;
        }
    }

    /// The sum as an unevaluated pair; the low part is 0 after an overflow or an infinite term.
    #[inline]
    pub(crate) fn pair(self) -> (f64, f64) {
        (self.high, if self.low.is_finite() { self.low } else { 0.0 })
    }

    #[inline]
    pub(crate) fn value(self) -> f64 {
        let (high, low) = self.pair();
        high + low
    }
}

impl Sum<true> {
    /// The sum of lanes that were added up compensated, each to `high + low`, in order. An infinite term has left a
    /// correction that is none.
    #[inline(always)]
    #[allow(clippy::inline_always)] // what uses lanes must be inlined into the function that has the instructions
    pub(crate) fn of_lanes<L: Lanes<Array = [f64; F64_LANES]>>(high: L, low: L) -> Self {
        let mut sum = Self::default();
        let low = low.array().into_iter().filter(|low| low.is_finite());
        for term in high.array().into_iter().chain(low) {
            sum.add(term);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compensated_sum_keeps_what_a_plain_one_loses() {
        let terms = [1.0, 1e100, 1.0, -1e100]; // exact sum 2
        let mut compensated = Sum::<true>::default();
        let mut plain = Sum::<false>::default();
        for term in terms {
            compensated.add(term);
            plain.add(term);
        }
        assert_eq!((compensated.value(), plain.value()), (2.0, 0.0));
    }
}
