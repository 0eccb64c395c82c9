//! Per-token estimators of KL(policy ‖ reference) from samples of the policy.
//!
//! Source: J. Schulman, "Approximating KL Divergence" (2020), with d = reference − policy:
//! k1 = −d, k2 = d²/2, k3 = exp(d) − 1 − d.

use std::str::FromStr;

use crate::compensated::Sum;
use crate::rows::{Rows, same_length};
use crate::{Error, Float, Result};

/// One of Schulman's three estimators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// −d: unbiased, high variance, may be negative.
    K1,
    /// d²/2: low variance, biased, never negative.
    K2,
    /// exp(d) − 1 − d: unbiased, low variance, never negative.
    K3,
}

impl FromStr for Estimator {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "k1" => Ok(Self::K1),
            "k2" => Ok(Self::K2),
            "k3" => Ok(Self::K3),
            _ => Err(Error::UnknownChoice {
                argument: "estimator",
                found: name.into(),
                legal: "\"k1\", \"k2\", \"k3\"",
            }),
        }
    }
}

/// How the tokens of a sequence become one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Σ over the tokens of the sequence.
    Sum,
    /// Σ over the tokens, divided by their number; 0 for a sequence without tokens.
    Mean,
}

/// Writes the estimate of every token to `out`; slots that are no tokens become exactly 0, whatever they held.
///
/// `policy`, `reference` and `out` have one element per slot of `rows`, log-probabilities in nats. The relative error is
/// at most 16u for `f64` and 8u for `f32` (u the unit roundoff), results below the normal range aside. An overflow gives
/// +inf (k1: with its sign). A NaN on a token gives the positive quiet NaN; so do two equal infinities, whose difference means nothing. If only the
/// policy is −inf then k1 = −inf and k2 = k3 = +inf; if only the reference is, all three are +inf.
///
/// # Errors
/// Lengths that do not match; see [`Rows::check`].
pub fn token_kl<T: Float>(
    policy: &[T],
    reference: &[T],
    estimator: Estimator,
    rows: &Rows<'_>,
    out: &mut [T],
) -> Result<()> {
    check(policy, reference, rows)?;
    same_length("out", out.len(), policy.len(), "`policy`")?;
    match estimator {
        Estimator::K1 => each(policy, reference, rows, out, k1),
        Estimator::K2 => each(policy, reference, rows, out, k2),
        Estimator::K3 => each(policy, reference, rows, out, k3),
    }
    Ok(())
}

/// Writes one value per sequence of `rows` to `out`: the sum or the mean of its tokens' estimates.
///
/// As [`token_kl`]; the estimates are not rounded before they are added, sums of `f32` data run in `f64` and sums of
/// `f64` data are compensated. Slots that are no tokens are never looked at; a sequence without tokens gives 0.
///
/// # Errors
/// Lengths that do not match; see [`Rows::check`].
pub fn sequence_kl<T: Float>(
    policy: &[T],
    reference: &[T],
    estimator: Estimator,
    rows: &Rows<'_>,
    reduction: Reduction,
    out: &mut [T],
) -> Result<()> {
    check(policy, reference, rows)?;
    same_length("out", out.len(), rows.count(), "the rows of `policy`")?;
    match (T::COMPENSATE, estimator) {
        (true, Estimator::K1) => {
            reduced::<T, true>(policy, reference, rows, reduction, out, k1);
        }
        (true, Estimator::K2) => {
            reduced::<T, true>(policy, reference, rows, reduction, out, k2);
        }
        (true, Estimator::K3) => {
            reduced::<T, true>(policy, reference, rows, reduction, out, k3);
        }
        (false, Estimator::K1) => {
            reduced::<T, false>(policy, reference, rows, reduction, out, k1);
        }
        (false, Estimator::K2) => {
            reduced::<T, false>(policy, reference, rows, reduction, out, k2);
        }
        (false, Estimator::K3) => {
            reduced::<T, false>(policy, reference, rows, reduction, out, k3);
        }
    }
    Ok(())
}

fn check<T>(policy: &[T], reference: &[T], rows: &Rows<'_>) -> Result<()> {
    same_length("reference", reference.len(), policy.len(), "`policy`")?;
    rows.check(policy.len())
}

fn each<T: Float>(
    policy: &[T],
    reference: &[T],
    rows: &Rows<'_>,
    out: &mut [T],
    term: impl Fn(T, T) -> f64,
) {
    rows.for_each(|_, row| {
        row.for_each(|slot, is_token| {
            out[slot] = T::narrow(if is_token {
                term(policy[slot], reference[slot])
            } else {
                0.0
            });
        });
    });
}

fn reduced<T: Float, const COMPENSATE: bool>(
    policy: &[T],
    reference: &[T],
    rows: &Rows<'_>,
    reduction: Reduction,
    out: &mut [T],
    term: impl Fn(T, T) -> f64,
) {
    rows.for_each(|number, row| {
        let mut sum = Sum::<COMPENSATE>::default();
        let mut count = 0usize;
        row.for_each(|slot, is_token| {
            if is_token {
                sum.add(term(policy[slot], reference[slot]));
                count += 1;
            }
        });
        out[number] = T::narrow(match reduction {
            Reduction::Sum => sum.value(),
            Reduction::Mean => sum.value() / count.max(1) as f64,
        });
    });
}

#[inline]
fn k1<T: Float>(policy: T, reference: T) -> f64 {
    T::difference(policy, reference).0 // not −(reference − policy): equal arguments give +0
}

#[inline]
fn k2<T: Float>(policy: T, reference: T) -> f64 {
    let d = T::difference(reference, policy).0;
    (0.5 * d) * d // in this order an overflow of d² alone does no harm
}

/// The difference up to which the series is used; exp(d) − 1 − d loses 2u at most beyond it.
const SERIES_LIMIT: f64 = 2.0;

#[inline]
fn k3<T: Float>(policy: T, reference: T) -> f64 {
    let (d, low) = T::difference(reference, policy);
    if d.abs() <= SERIES_LIMIT {
        let value = series::<T>(d);
        return value + low * (value + d); // k3′(d) = exp(d) − 1 = k3(d) + d
    }
    let exp = d.exp();
    if exp == f64::INFINITY {
        return exp; // exp(d) − 1 − d would be inf − inf for d = inf
    }
    // For large d the relative error of `exp` is that of d times d: the low part of the difference matters.
    (exp - 1.0 - d) + low * (exp - 1.0)
}

/// Σ_{k≥2} dᵏ/k! by Horner's rule, d² last: exact zeros stay zeros, and nothing cancels for small d.
#[inline]
fn series<T: Float>(d: f64) -> f64 {
    let coefficients = &INVERSE_FACTORIALS[..T::K3_TERMS];
    let tail = coefficients.iter().rev().fold(0.0, |sum, c| sum * d + c);
    d * d * tail
}

/// 1/2!, 1/3!, … 1/27!
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
