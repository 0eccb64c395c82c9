//! k3 of `f32` tokens for every difference on |d| ≤ 2, together with the rounding of the difference itself.
#![allow(clippy::excessive_precision)] // factorials

use rlkernels::kl::{Estimator, KlRatio, Samples, token_kl};
use rlkernels::rows::{Rows, Valid};

/// 2^-24.
const U: f64 = 5.960_464_477_539_063e-8;

/// Σ_{k≥2} d^k / k! in `f64`, 30 terms.
fn k3(d: f64) -> f64 {
    let tail = (3..=30)
        .rev()
        .fold(1.0, |tail, k| 1.0 + tail * d / f64::from(k));
    d * d / 2.0 * tail
}

/// The largest error in u of the estimates of these differences, the rounding of a difference included: it moves the
/// estimate by d·k3′(d) / k3(d) = d·(e^d − 1) / k3(d) times its own relative size, which is 1u at most.
fn worst(differences: &[f32]) -> f64 {
    let policy = vec![0.0; differences.len()];
    let mut out = vec![9.0; differences.len()];
    let rows = Rows::Padded {
        rows: 1,
        width: differences.len(),
        valid: Valid::All,
    };
    let samples = Samples::on_policy(&policy, differences);
    token_kl(&samples, Estimator::K3, KlRatio::None, &rows, &mut out).unwrap();
    let errors = differences.iter().zip(&out).map(|(&d, &got)| {
        let d = f64::from(d);
        let want = k3(d);
        if want < f64::from(f32::MIN_POSITIVE) {
            return 0.0; // below the normal range
        }
        let condition = d * (want + d) / want;
        (f64::from(got) - want).abs() / want / U + condition
    });
    errors.fold(0.0, f64::max)
}

/// Every `step`th pattern of bits from 0 to 2, of either sign.
fn worst_of_all(step: usize) -> f64 {
    let mut largest = 0.0f64;
    let mut chunk = Vec::with_capacity(1 << 16);
    for bits in (0..=2f32.to_bits()).step_by(step) {
        chunk.push(f32::from_bits(bits));
        chunk.push(-f32::from_bits(bits));
        if chunk.len() == 1 << 16 {
            largest = largest.max(worst(&chunk));
            chunk.clear();
        }
    }
    largest.max(worst(&chunk))
}

#[test]
fn a_token_is_within_8u_for_many_differences() {
    let largest = worst_of_all(997);
    assert!((2.9..=8.0).contains(&largest), "{largest}u");
}

#[test]
#[ignore = "two billion differences, a minute in release"]
fn a_token_is_within_8u_for_every_difference() {
    let largest = worst_of_all(1);
    println!("{largest}u");
    assert!((2.9..=8.0).contains(&largest), "{largest}u");
}
