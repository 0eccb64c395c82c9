//! Error-free transformations and the compensated sum (Ogita, Rump, Oishi: "Accurate Sum and Dot Product", 2005).

/// `a + b` as `(sum, error)`, exact unless the sum overflows (Knuth's `TwoSum`).
#[inline]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// `a - b` as `(difference, error)`; the error is 0 where it cannot be computed (an overflow on the way).
#[inline]
pub(crate) fn two_difference(a: f64, b: f64) -> (f64, f64) {
    let (difference, error) = two_sum(a, -b);
    (difference, if error.is_finite() { error } else { 0.0 })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_difference_loses_nothing() {
        assert_eq!(two_difference(1.0, 1e-30), (1.0, -1e-30));
        assert_eq!(two_difference(f64::MAX, -f64::MAX), (f64::INFINITY, 0.0));
    }

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
