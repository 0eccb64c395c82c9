//! KL estimators against their definitions, their layouts against each other, and their special values.

mod naive;

use proptest::prelude::*;
use rlkernels::kl::{Estimator, Reduction, sequence_kl, token_kl};
use rlkernels::rows::{Rows, Valid};

const ESTIMATORS: [Estimator; 3] = [Estimator::K1, Estimator::K2, Estimator::K3];

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
        lengths in prop::collection::vec(0i64..=7, 1..6), values in prop::collection::vec(-9f32..0.0, 84)
    ) {
        let (rows, width) = (lengths.len(), 7usize);
        let (policy, reference) = (&values[..rows * width], &values[42..42 + rows * width]);
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
