//! From the sums over a row to its maximum, the logarithm of its sum and its entropy; and the slow path for extreme rows.

use std::f64::consts::LN_2;

use super::format::Vectors;
use super::scan::{Constants, DEPTH, Scale, Segment, term};
use crate::double::{Double, two_difference};
use crate::isa::{F64_LANES, Lanes, Simd, tree64};
use crate::math::{exp64, log64};

/// A sum of all terms but the greatest below this, 2^-90, comes from padding and impossible tokens only.
const CERTAIN: f64 = 8.1e-28;
/// As [`CERTAIN`] for Σ e·(M − x)/τ: padding lies 83.2 nats below the reference.
const CERTAIN_WEIGHTED: f64 = 128.0 * CERTAIN;

/// The numbers of a row from which log-probabilities, entropy and gradient are computed.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// M; NaN where the row has NaN, +inf, or nothing but −inf.
    pub(super) max: f64,
    /// log Σ e^((x−M)/τ); NaN as `max`.
    pub(super) log_sum: f64,
    /// H; only valid where it was requested.
    pub(super) entropy: f64,
    /// B; NaN where the row takes the slow path.
    pub(super) reference: f64,
}

impl Row {
    /// A row that is not read: of log-probabilities and entropy 0.
    pub(super) const IGNORED: Self = Self {
        max: 0.0,
        log_sum: 0.0,
        entropy: 0.0,
        reference: f64::NAN,
    };

    const NAN: Self = Self {
        max: f64::NAN,
        log_sum: f64::NAN,
        entropy: f64::NAN,
        reference: f64::NAN,
    };

    /// The row whose parts were scanned.
    #[inline(always)]
    pub(super) fn new<F: Vectors, S: Simd, const ENTROPY: bool>(
        s: S,
        words: &[F::Word],
        parts: &[Segment],
        scale: &Scale,
    ) -> Self {
        let whole = Segment::merged(parts);
        if !whole.is_usable::<F>() {
            return slow::<F, S>(s, words, scale.temperature);
        }
        // The greatest term is subtracted as it was summed and replaced by 1, so that a row with one likely token has the
        // accuracy of the sum of the others.
        let reference = (whole.reference, whole.origin);
        let constants = Constants::new::<F, S>(s, scale, reference, 0.0, DEPTH);
        let greatest = F::splat(s, whole.max);
        let greatest = if scale.exact {
            term::<F, S, true>(s, greatest, &constants)
        } else {
            term::<F, S, false>(s, greatest, &constants)
        };
        let e = F::reals(s, greatest.mantissa * greatest.power)[0];
        let distance = whole.max - whole.origin;
        let shrink = exp(
            s,
            -LN_2 * scale.above(whole.max, whole.reference, scale.exact),
        );
        let others = (whole.sum - e) * shrink;
        let others = if others < CERTAIN { 0.0 } else { others };
        let sum = 1.0 + others;
        let log_sum = log(s, sum);
        let entropy = if ENTROPY {
            // Σ e·(x − M). Terms that vanish beside the greatest in `whole.sum` count here: the greatest adds 0 then, as
            // A differs from M only where A is another likely token.
            let below = (whole.weighted - e * distance) * shrink - distance * others;
            let below = below / sum / scale.temperature;
            let certain = others == 0.0 && -below < CERTAIN_WEIGHTED;
            if certain {
                0.0
            } else {
                not_negative(log_sum - below)
            }
        } else {
            0.0
        };
        Self {
            max: whole.max,
            log_sum,
            entropy,
            reference: whole.reference,
        }
    }

    /// The log-probability of a token with this logit.
    #[inline(always)]
    pub(super) fn logprob(&self, logit: f64, temperature: f64) -> f64 {
        let value = (logit - self.max) / temperature - self.log_sum;
        if value > 0.0 { 0.0 } else { value }
    }
}

fn not_negative(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// e^x of one number.
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: f64) -> f64 {
    exp64(s, s.f64(x)).array()[0]
}

#[inline(always)]
fn log<S: Simd>(s: S, x: f64) -> f64 {
    log64(s, s.f64(x)).array()[0]
}

/// e^((x−M)/τ) and (x−M)/τ of eight logits.
#[inline(always)]
pub(super) fn slow_terms<S: Simd>(
    s: S,
    x: &[f64; F64_LANES],
    max: f64,
    temperature: f64,
) -> (S::F64, S::F64) {
    let temperature = s.f64(temperature);
    let (difference, error) = two_difference(s.load64(x), s.f64(max));
    let quotient = difference / temperature;
    let rest = ((-quotient).fma(temperature, difference) + error) / temperature;
    let small = rest.abs().lt(s.f64(1.0)); // false for what an overflow left
    let rest = S::F64::select(small, rest, s.f64(0.0));
    let e = exp64(s, quotient);
    (e.fma(rest, e), quotient)
}

/// The next eight logits as `f64`, −inf after the last.
#[inline(always)]
pub(super) fn reals<F: Vectors>(words: &[F::Word]) -> [f64; F64_LANES] {
    let mut x = [f64::NEG_INFINITY; F64_LANES];
    for (x, &word) in x.iter_mut().zip(words) {
        *x = F::real(word);
    }
    x
}

/// Any row, by divisions and `exp64`: logits beyond 2^20 τ (`f64`: 2^49 τ), extreme temperatures, nothing but −inf, +inf.
#[inline(always)]
fn slow<F: Vectors, S: Simd>(s: S, words: &[F::Word], temperature: f64) -> Row {
    let mut max = f64::NEG_INFINITY;
    for &word in words {
        let x = F::real(word);
        if x.is_nan() {
            return Row::NAN;
        }
        max = if x > max { x } else { max };
    }
    if max.is_infinite() {
        return Row::NAN;
    }
    let zero = s.f64(0.0);
    let (mut sum, mut weighted) = (Double::zero(s), Double::zero(s));
    for eight in words.chunks(F64_LANES) {
        let (e, q) = slow_terms(s, &reals::<F>(eight), max, temperature);
        let term = S::F64::select(e.eq(zero), zero, e * q);
        sum = sum.plus(e);
        weighted = weighted.plus(term);
    }
    let sum = total(sum);
    let log_sum = log(s, sum);
    Row {
        max,
        log_sum,
        entropy: not_negative(log_sum - total(weighted) / sum),
        reference: f64::NAN,
    }
}

/// The sum of the lanes; high and low parts are added up apart.
#[inline(always)]
fn total<L: Lanes<Array = [f64; F64_LANES]>>(sum: Double<L>) -> f64 {
    tree64(sum.high.array()) + tree64(sum.low.array())
}
