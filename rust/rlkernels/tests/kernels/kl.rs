//! KL estimators against their definitions, their layouts against each other, and their special values.

use proptest::prelude::*;
use rlkernels::kl::{Estimator, KlRatio, Reduction, Samples, full_kl};
use rlkernels::rows::{Rows, Valid};
use rlkernels::{Float, Result, kl};

use crate::naive;

const ESTIMATORS: [Estimator; 3] = [Estimator::K1, Estimator::K2, Estimator::K3];

fn token_kl<T: Float>(
    policy: &[T],
    reference: &[T],
    estimator: Estimator,
    rows: &Rows<'_>,
    out: &mut [T],
) -> Result<()> {
    let samples = Samples::on_policy(policy, reference);
    kl::token_kl(&samples, estimator, KlRatio::None, rows, out)
}

fn sequence_kl<T: Float>(
    policy: &[T],
    reference: &[T],
    estimator: Estimator,
    rows: &Rows<'_>,
    reduction: Reduction,
    out: &mut [T],
) -> Result<()> {
    let samples = Samples::on_policy(policy, reference);
    kl::sequence_kl(&samples, estimator, KlRatio::None, rows, reduction, out)
}

fn all(width: usize) -> Rows<'static> {
    Rows::Padded {
        rows: 1,
        width,
        valid: Valid::All,
    }
}

fn one(policy: f64, reference: f64, estimator: Estimator) -> f64 {
    let mut out = [7.0];
    token_kl(&[policy], &[reference], estimator, &all(1), &mut out).unwrap();
    out[0]
}

proptest! {
    #[test]
    fn every_estimator_is_its_definition(policy in -20f64..0.0, d in -20f64..20.0) {
        let reference = policy + d;
        let d = reference - policy;
        for (estimator, want) in ESTIMATORS.into_iter().zip([-d, d * d / 2.0, naive::k3(d)]) {
            let got = one(policy, reference, estimator);
            // The naive k3 loses u·|d|, and d itself was rounded once more than in the kernel.
            let limit = 1e-13 * want.abs() + 1e-15 * (1.0 + d.exp());
            prop_assert!((got - want).abs() <= limit, "{estimator:?}({d}): {got} is not {want}");
        }
    }

    #[test]
    fn mask_lengths_and_ragged_layouts_agree(
        lengths in prop::collection::vec(0i64..=70, 1..6), values in prop::collection::vec(-3f32..0.0, 840)
    ) {
        let (rows, width) = (lengths.len(), 70usize);
        let (policy, reference) = (&values[..rows * width], &values[420..420 + rows * width]);
        let valid = |slot: usize| (slot % width) < lengths[slot / width] as usize;
        let mask: Vec<u8> = (0..rows * width).map(|slot| if valid(slot) { 255 } else { 0 }).collect();
        let dense = |values: &[f32]| -> Vec<f32> {
            (0..rows * width).filter(|&slot| valid(slot)).map(|slot| values[slot]).collect()
        };
        let padded = |valid| Rows::Padded { rows, width, valid };
        for estimator in ESTIMATORS {
            for reduction in [Reduction::Sum, Reduction::Mean] {
                let (mut a, mut b, mut c) = (vec![0.5f32; rows], vec![0.5f32; rows], vec![0.5f32; rows]);
                sequence_kl(policy, reference, estimator, &padded(Valid::Mask(&mask)), reduction, &mut a).unwrap();
                sequence_kl(policy, reference, estimator, &padded(Valid::Prefix(&lengths)), reduction, &mut b).unwrap();
                let ragged = Rows::Ragged(&lengths);
                sequence_kl(&dense(policy), &dense(reference), estimator, &ragged, reduction, &mut c).unwrap();
                prop_assert_eq!(&a, &b);
                prop_assert_eq!(&a, &c);
            }
        }
    }
}

#[test]
fn special_values_are_those_documented() {
    const INF: f64 = f64::INFINITY;
    let cases = [
        // policy, reference, k1, k2, k3
        (-INF, -1.0, [-INF, INF, INF]),
        (-1.0, -INF, [INF, INF, INF]),
        (-800.0, -1.0, [-799.0, 319_200.5, INF]),
        (-1.0, -1.0, [0.0, 0.0, 0.0]),
        (-f64::MAX, f64::MAX, [-INF, INF, INF]),
        (f64::MAX, -f64::MAX, [INF, INF, INF]),
    ];
    for (policy, reference, want) in cases {
        let got = ESTIMATORS.map(|estimator| one(policy, reference, estimator));
        assert_eq!(got, want, "policy {policy}, reference {reference}");
    }
    for (policy, reference) in [(-INF, -INF), (-f64::NAN, 0.0), (0.0, -f64::NAN)] {
        for estimator in ESTIMATORS {
            let bits = one(policy, reference, estimator).to_bits();
            assert_eq!(bits, 0x7ff8_0000_0000_0000, "the positive quiet NaN");
        }
    }
}

proptest! {
    #[test]
    fn ratios_are_their_definition(
        values in prop::collection::vec(-3f64..0.0, 99), lengths in (0i64..=11, 0i64..=11, 0i64..=11)
    ) {
        let lengths = [lengths.0, lengths.1, lengths.2];
        let (policy, reference, old) = (&values[..33], &values[33..66], &values[66..]);
        let rows = Rows::Padded { rows: 3, width: 11, valid: Valid::Prefix(&lengths) };
        let samples = Samples { policy, reference, old: Some(old) };
        for (ratio, estimator) in [KlRatio::Token, KlRatio::Sequence].into_iter().zip([Estimator::K3, Estimator::K2]) {
            let (mut tokens, mut means) = ([9.0; 33], [9.0; 3]);
            kl::token_kl(&samples, estimator, ratio, &rows, &mut tokens).unwrap();
            kl::sequence_kl(&samples, estimator, ratio, &rows, Reduction::Mean, &mut means).unwrap();
            for (row, &length) in lengths.iter().enumerate() {
                let slots = row * 11..row * 11 + length as usize;
                let mean = slots.clone().map(|i| policy[i] - old[i]).sum::<f64>() / (length.max(1) as f64);
                let mut sum = 0.0;
                for i in slots.clone() {
                    let d = reference[i] - policy[i];
                    let value = if estimator == Estimator::K3 { naive::k3(d) } else { d * d / 2.0 };
                    let exponent = if ratio == KlRatio::Token { policy[i] - old[i] } else { mean };
                    let want = value * exponent.exp();
                    prop_assert!((tokens[i] - want).abs() <= 1e-13 * (1.0 + want.abs()));
                    sum += want;
                }
                prop_assert!(tokens[slots.end..(row + 1) * 11].iter().all(|&x| x == 0.0));
                let want = sum / (length.max(1) as f64);
                prop_assert!((means[row] - want).abs() <= 1e-12 * (1.0 + want.abs()));
            }
        }
        // without `old` every ratio is 1
        let (mut with, mut without) = ([9.0; 33], [9.0; 33]);
        let samples = Samples::on_policy(policy, reference);
        kl::token_kl(&samples, Estimator::K3, KlRatio::Token, &rows, &mut with).unwrap();
        kl::token_kl(&samples, Estimator::K3, KlRatio::None, &rows, &mut without).unwrap();
        prop_assert_eq!(with, without);
    }

    #[test]
    fn the_full_divergence_is_its_definition(values in prop::collection::vec(-30f64..0.0, 2..300)) {
        let vocabulary = values.len() / 2;
        let (policy, reference) = (&values[..vocabulary], &values[vocabulary..2 * vocabulary]);
        let terms = || policy.iter().zip(reference).map(|(p, q)| p.exp() * (p - q));
        let (want, scale) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let mut out = [9.0];
        full_kl(policy, reference, vocabulary, &mut out).unwrap();
        prop_assert!((out[0] - want).abs() <= 1e-13 * scale);
        let narrow = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
        let (policy, reference) = (narrow(policy), narrow(reference));
        let terms = policy.iter().zip(&reference);
        let terms = terms.map(|(&p, &q)| f64::from(p).exp() * (f64::from(p) - f64::from(q)));
        let (want, scale) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
        let mut out = [9.0];
        full_kl(&policy, &reference, vocabulary, &mut out).unwrap();
        prop_assert!((f64::from(out[0]) - want).abs() <= 8.0 * 2f64.powi(-24) * scale);
    }
}

#[test]
fn impossible_tokens_of_the_full_divergence() {
    const INF: f32 = f32::INFINITY;
    let half = 0.5f32.ln();
    let one = |policy: [f32; 3], reference: [f32; 3]| {
        let mut out = [9.0];
        full_kl(&policy, &reference, 3, &mut out).unwrap();
        let mut wide = [9.0];
        let (policy, reference) = (policy.map(f64::from), reference.map(f64::from));
        full_kl(&policy, &reference, 3, &mut wide).unwrap();
        assert_eq!(out[0].is_nan(), wide[0].is_nan());
        assert!(out[0].is_nan() || (f64::from(out[0]) - wide[0]).abs() < 1e-7 || out[0] == INF);
        out[0]
    };
    assert_eq!(one([half, half, -INF], [half, half, -INF]), 0.0);
    assert_eq!(one([0.0, -INF, -INF], [half, half, f32::NAN]), 2f32.ln());
    assert_eq!(one([half, half, -120.0], [half, half, -INF]), INF);
    assert_eq!(one([half, -800.0, half], [half, -INF, half]), INF);
    assert_eq!(
        one([half, half, f32::NAN], [half; 3]).to_bits(),
        0x7fc0_0000
    );
    assert_eq!(
        one([half; 3], [half, half, -f32::NAN]).to_bits(),
        0x7fc0_0000
    );
    let empty: [f64; 0] = [];
    full_kl(&empty, &empty, 3, &mut []).unwrap();
    let error = full_kl(&empty, &empty, 0, &mut []).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`policy_logprobs` is empty, must hold at least one element"
    );
}

#[test]
fn a_sum_of_vanishing_estimates_does_not_vanish() {
    let (policy, reference) = ([0.0f32; 4096], [1e-20f32; 4096]);
    let mut out = [9.0];
    sequence_kl(
        &policy,
        &reference,
        Estimator::K3,
        &all(4096),
        Reduction::Sum,
        &mut out,
    )
    .unwrap();
    let d = f64::from(1e-20f32);
    let want = 4096.0 * d * d / 2.0; // each is a subnormal of f32
    assert!((f64::from(out[0]) - want).abs() <= 8.0 * 2f64.powi(-24) * want);
}

#[test]
fn slots_that_are_no_tokens_are_never_used() {
    let rows = Rows::Padded {
        rows: 2,
        width: 2,
        valid: Valid::Prefix(&[1, 0]),
    };
    let policy = [-1.0, f64::NAN, f64::INFINITY, f64::NAN];
    let mut tokens = [9.0; 4];
    token_kl(&policy, &[-2.0; 4], Estimator::K1, &rows, &mut tokens).unwrap();
    assert_eq!(tokens, [1.0, 0.0, 0.0, 0.0]);
    let mut means = [9.0; 2];
    let mean = Reduction::Mean;
    sequence_kl(&policy, &[-2.0; 4], Estimator::K1, &rows, mean, &mut means).unwrap();
    assert_eq!(means, [1.0, 0.0]);
}

#[test]
fn wrong_layouts_are_named_with_their_values() {
    let padded = |valid| Rows::Padded {
        rows: 2,
        width: 2,
        valid,
    };
    let cases = [
        (
            padded(Valid::Mask(&[1; 3])),
            "`mask` has 3 elements, must have 4 like `policy`",
        ),
        (
            padded(Valid::Prefix(&[1])),
            "`lengths` has 1 elements, must have 2 like the rows of `policy`",
        ),
        (
            padded(Valid::Prefix(&[0, 3])),
            "`lengths[1]` is 3, must be between 0 and 2 (the slots of a row)",
        ),
        (
            Rows::Ragged(&[-1, 5]),
            "`lengths[0]` is -1, must be between 0 and 4 (the number of tokens)",
        ),
        (
            Rows::Ragged(&[1, 2]),
            "the sum of `lengths` is 3, must be 4, the number of elements of `policy`",
        ),
    ];
    for (rows, message) in cases {
        let mut out = [0.0; 4];
        let error = token_kl(&[0.0; 4], &[0.0; 4], Estimator::K1, &rows, &mut out).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
