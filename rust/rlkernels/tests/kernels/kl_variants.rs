//! KL on every instruction set and any number of threads: the same bits.

use rlkernels::kl::{Estimator, KlRatio, Reduction, Samples, full_kl, sequence_kl, token_kl};
use rlkernels::rows::{Rows, Valid};

use crate::variants::{Digest, Numbers, Process, on_every_isa};

const ALL: [Estimator; 3] = [Estimator::K1, Estimator::K2, Estimator::K3];

/// Log-probabilities of which some are far from one another, infinite or NaN.
fn log_probabilities(numbers: &mut Numbers, near: &[f64], count: usize) -> Vec<f64> {
    (0..count)
        .map(|i| match numbers.word() % 64 {
            0 => f64::NEG_INFINITY,
            1 => f64::NAN,
            2 => -700.0 * numbers.unit(),
            3 => near.get(i).copied().unwrap_or(0.0),
            _ => near.get(i).copied().unwrap_or(-3.0) + numbers.unit() - 0.5,
        })
        .collect()
}

/// Everything that the family computes, over the same inputs.
fn digest(rows: usize, width: usize, estimators: &[Estimator]) -> u64 {
    let mut numbers = Numbers::new(7);
    let slots = rows * width;
    let policy = log_probabilities(&mut numbers, &[], slots);
    let reference = log_probabilities(&mut numbers, &policy, slots);
    let old = log_probabilities(&mut numbers, &policy, slots);
    let mask: Vec<u8> = (0..slots)
        .map(|_| (numbers.word() % 3) as u8 * 127)
        .collect();
    let lengths: Vec<i64> = (0..rows)
        .map(|_| (numbers.unit() * (width + 1) as f64) as i64)
        .collect();
    let narrow = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let (policy_32, reference_32, old_32) = (narrow(&policy), narrow(&reference), narrow(&old));
    let wide = Samples {
        policy: &policy,
        reference: &reference,
        old: Some(&old),
    };
    let short = Samples {
        policy: &policy_32,
        reference: &reference_32,
        old: Some(&old_32),
    };
    let mut digest = Digest::default();
    let (mut out, mut out_32) = (vec![9.0; slots], vec![9.0; slots]);
    let (mut sums, mut sums_32) = (vec![9.0; rows], vec![9.0; rows]);
    for valid in [Valid::All, Valid::Mask(&mask), Valid::Prefix(&lengths)] {
        let rows = Rows::Padded { rows, width, valid };
        for &estimator in estimators {
            for ratio in [KlRatio::None, KlRatio::Token, KlRatio::Sequence] {
                token_kl(&wide, estimator, ratio, &rows, &mut out).unwrap();
                token_kl(&short, estimator, ratio, &rows, &mut out_32).unwrap();
                sequence_kl(&wide, estimator, ratio, &rows, Reduction::Mean, &mut sums).unwrap();
                sequence_kl(
                    &short,
                    estimator,
                    ratio,
                    &rows,
                    Reduction::Sum,
                    &mut sums_32,
                )
                .unwrap();
                digest.add_f64(&out);
                digest.add_f32(&out_32);
                digest.add_f64(&sums);
                digest.add_f32(&sums_32);
            }
        }
    }
    full_kl(&policy, &reference, width, &mut sums).unwrap();
    full_kl(&policy_32, &reference_32, width, &mut sums_32).unwrap();
    digest.add_f64(&sums);
    digest.add_f32(&sums_32);
    digest.value()
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for (isa, value) in on_every_isa(|| digest(5, 203, &ALL)) {
        assert_eq!(format!("{value:#018x}"), "0x5373bcbd7da48039", "{isa}");
    }
}

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    let process = Process::mine();
    process.set_threads(1);
    let serial = digest(150, 1001, &[Estimator::K3]); // more slots than a call works on alone
    for threads in [2, 3] {
        process.set_threads(threads);
        assert_eq!(
            digest(150, 1001, &[Estimator::K3]),
            serial,
            "{threads} threads"
        );
    }
}
