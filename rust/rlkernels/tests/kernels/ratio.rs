//! Importance ratios, corrections and statistics against their definitions, and the same bits everywhere.
#![allow(unreachable_pub)]

use proptest::prelude::*;
use rlkernels::ratio::{
    Correction, Level, WeightConvention, importance_ratio, importance_weights, ratio_statistics,
};
use rlkernels::rows::{Rows, Valid};

use crate::naive;
use crate::variants::{Digest, Numbers, Process};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn padded(rows: usize, width: usize, valid: Valid<'_>) -> Rows<'_> {
    Rows::Padded { rows, width, valid }
}

fn line(width: usize) -> Rows<'static> {
    padded(1, width, Valid::All)
}

fn near(got: f64, want: f64, scale: f64) -> bool {
    got == want || (got - want).abs() <= 1e-12 * scale
}

/// Quantile by sorting.
fn quantile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let position = 0.99 * (values.len() - 1) as f64;
    let (below, share) = (position.floor() as usize, position.fract());
    let above = values[(below + 1).min(values.len() - 1)];
    values[below] + share * (above - values[below])
}

fn statistics(d: &[f64], signs: &[f64]) -> Vec<f64> {
    let r: Vec<f64> = d.iter().map(|d| d.exp()).collect();
    let each = |f: &dyn Fn(f64) -> f64| naive::mean(&d.iter().map(|&d| f(d)).collect::<Vec<_>>());
    let share =
        |f: &dyn Fn(usize) -> bool| (0..d.len()).filter(|&i| f(i)).count() as f64 / d.len() as f64;
    let squares: f64 = r.iter().map(|r| r * r).sum();
    vec![
        naive::mean(&r),
        d.iter().fold(0.0, |most, d| d.abs().max(most)),
        quantile(d.iter().map(|d| d.abs()).collect()),
        each(&naive::k3),
        each(&|d| (2.0 * d).exp_m1()),
        r.iter().sum::<f64>().powi(2) / (d.len() as f64 * squares),
        each(&|d| d.abs().exp()),
        share(&|i| r[i] < 0.8),
        share(&|i| r[i] > 1.25),
        share(&|i| r[i] < 0.8 && signs[i] < 0.0),
        share(&|i| r[i] > 1.25 && signs[i] > 0.0),
    ]
}

proptest! {
    #[test]
    fn every_statistic_is_its_definition(
        lengths in prop::collection::vec(0i64..=30, 1..6), seed: u64, spread in 0.01f64..2.0
    ) {
        prop_assume!(lengths.iter().sum::<i64>() > 0);
        let mut numbers = Numbers::new(seed);
        let count = lengths.iter().sum::<i64>() as usize;
        let policy: Vec<f64> = (0..count).map(|_| -4.0 * numbers.unit()).collect();
        let behaviour: Vec<f64> = policy.iter().map(|p| p + spread * (numbers.unit() - 0.5)).collect();
        let advantages: Vec<f64> = lengths.iter().map(|_| numbers.unit() - 0.5).collect();
        let rows = Rows::Ragged(&lengths);
        let got = ratio_statistics(&policy, &behaviour, 0.2, 0.25, Some(&advantages), &rows).expect("good");
        let d: Vec<f64> = policy.iter().zip(&behaviour).map(|(p, b)| p - b).collect();
        let mut rest = &d[..];
        let (mut signs, mut sums, mut row_signs) = (vec![], vec![], vec![]);
        for (&length, &advantage) in lengths.iter().zip(&advantages) {
            let (row, behind) = rest.split_at(length as usize);
            rest = behind;
            signs.extend(row.iter().map(|_| advantage));
            if length > 0 {
                sums.push(row.iter().sum::<f64>());
                row_signs.push(advantage);
            }
        }
        let mut want = statistics(&d, &signs);
        want.extend(statistics(&sums, &row_signs));
        want.push(sums.iter().copied().fold(INF, f64::min).exp());
        want.push(sums.iter().copied().fold(-INF, f64::max).exp());
        for ((name, got), want) in got.named().into_iter().zip(want) {
            // the naive sums lose u per term, and the naive differences u each
            prop_assert!((got - want).abs() <= 1e-12 * (1.0 + want.abs()), "{name}: {got} is not {want}");
        }
    }

    #[test]
    fn every_ratio_is_its_definition(lengths in prop::collection::vec(0i64..=19, 1..5), seed: u64) {
        let (rows, width) = (lengths.len(), 19);
        let mut numbers = Numbers::new(seed);
        let policy: Vec<f64> = (0..rows * width).map(|_| -9.0 * numbers.unit()).collect();
        let old: Vec<f64> = (0..rows * width).map(|_| -9.0 * numbers.unit()).collect();
        let layout = padded(rows, width, Valid::Prefix(&lengths));
        let mut tokens = vec![NAN; rows * width];
        importance_ratio(&policy, &old, Level::Token, &layout, &mut tokens).expect("good");
        let (mut means, mut sums) = (vec![NAN; rows], vec![NAN; rows]);
        importance_ratio(&policy, &old, Level::SequenceMean, &layout, &mut means).expect("good");
        importance_ratio(&policy, &old, Level::SequenceSum, &layout, &mut sums).expect("good");
        for row in 0..rows {
            let length = lengths[row] as usize;
            let mut sum = 0.0;
            for slot in 0..width {
                let d = policy[row * width + slot] - old[row * width + slot];
                let want = if slot < length { d.exp() } else { 0.0 };
                prop_assert!(near(tokens[row * width + slot], want, want));
                sum += if slot < length { d } else { 0.0 };
            }
            prop_assert!(near(sums[row], sum.exp(), 10.0 * sum.exp()));
            let mean = (sum / length.max(1) as f64).exp();
            prop_assert!(near(means[row], mean, 10.0 * mean));
        }
    }
}

#[test]
fn special_values_are_those_documented() {
    let policy = [0.0, -INF, -1.0, -INF, NAN, 1.0, -1e4];
    let old = [-1e4, -1.0, -INF, -INF, 0.0, 1.0, 0.0];
    let mut out = [7.0; 7];
    importance_ratio(&policy, &old, Level::Token, &line(7), &mut out).expect("good");
    assert_eq!(out[..3], [INF, 0.0, INF]);
    assert_eq!(out[3].to_bits(), 0x7ff8 << 48);
    assert_eq!(out[4].to_bits(), 0x7ff8 << 48);
    assert_eq!(out[5..], [1.0, 0.0]);
    let mut one = [7.0];
    importance_ratio(&policy, &old, Level::SequenceSum, &line(7), &mut one).expect("good");
    assert_eq!(one[0].to_bits(), 0x7ff8 << 48);
    let narrow = policy.map(|x| x as f32);
    let mut one = [7.0f32];
    importance_ratio(
        &narrow,
        &old.map(|x| x as f32),
        Level::SequenceMean,
        &line(7),
        &mut one,
    )
    .expect("good");
    assert_eq!(one[0].to_bits(), 0x7fc0_0000);
}

#[test]
fn weights_are_clamped_or_masked_and_missing_log_probs_move_nothing() {
    let old = [0.0, 0.0, 0.0, 0.0, 0.0];
    let sampling = [-1.0, 1.0, -(2.0f64.ln()), NAN, 0.0]; // ratios e, 1/e, 2, 1, 1
    let weights = |correction, c_min| {
        let convention = WeightConvention {
            correction,
            level: Level::Token,
            c_min,
            c_max: 2.0,
        };
        let mut out = [7.0; 5];
        importance_weights(&old, &sampling, &convention, &line(5), &mut out).expect("good");
        out
    };
    let low = (-1.0f64).exp();
    assert_eq!(
        weights(Correction::Truncated, None),
        [2.0, low, 2.0, 1.0, 1.0]
    );
    assert_eq!(
        weights(Correction::Truncated, Some(0.5)),
        [2.0, 0.5, 2.0, 1.0, 1.0]
    );
    assert_eq!(weights(Correction::Masked, None), [0.0, low, 2.0, 1.0, 1.0]); // bounds are inside
    assert_eq!(
        weights(Correction::Masked, Some(1.0)),
        [0.0, 0.0, 2.0, 1.0, 1.0]
    );
    let convention = WeightConvention {
        correction: Correction::Masked,
        level: Level::SequenceSum,
        c_min: Some(0.5),
        c_max: 2.5,
    };
    let rows = padded(2, 2, Valid::Prefix(&[2, 0]));
    let mut out = [7.0; 2];
    importance_weights(
        &[0.0; 4],
        &[NAN, -0.5, NAN, NAN],
        &convention,
        &rows,
        &mut out,
    )
    .expect("good");
    assert_eq!(out, [0.5f64.exp(), 1.0]);
}

#[test]
fn the_effective_sample_size_survives_ratios_beyond_the_range() {
    for shift in [-2000.0, 0.0, 2000.0] {
        let found = ratio_statistics(&[shift, shift], &[0.0; 2], 0.2, 0.2, None, &line(2));
        let found = found.expect("good").tokens;
        assert_eq!(found.ess_per_n, 1.0);
        assert_eq!(found.clipped_low, None);
    }
    let uneven = ratio_statistics(&[2000.0, 1000.0], &[0.0; 2], 0.2, 0.2, None, &line(2));
    let uneven = uneven.expect("good").tokens;
    assert_eq!(
        (uneven.ess_per_n, uneven.mean, uneven.p99_abs),
        (0.5, INF, 1990.0)
    );
}

#[test]
fn wrong_inputs_are_named() {
    let layout = padded(1, 2, Valid::Prefix(&[0]));
    let error = ratio_statistics(&[0.0; 2], &[0.0; 2], 0.2, 0.2, None, &layout).expect_err("none");
    assert_eq!(
        error.to_string(),
        "no slot of `policy` is a token, must be at least one"
    );
    let error = ratio_statistics(&[0.0; 2], &[0.0; 2], -0.2, 0.2, None, &line(2)).expect_err("low");
    assert_eq!(
        error.to_string(),
        "`epsilon_low` is -0.2, must be finite and at least 0"
    );
    let mut convention = WeightConvention {
        correction: Correction::Truncated,
        level: Level::Token,
        c_min: Some(3.0),
        c_max: 2.0,
    };
    let weights = |convention: &WeightConvention| {
        importance_weights(&[0.0; 2], &[0.0; 2], convention, &line(2), &mut [0.0; 2])
            .expect_err("wrong")
            .to_string()
    };
    assert_eq!(
        weights(&convention),
        "`c_min` is 3, must be finite, at least 0 and at most `c_max` = 2"
    );
    convention.c_max = NAN;
    assert_eq!(
        weights(&convention),
        "`c_max` is NaN, must be finite and above 0"
    );
    convention.level = Level::SequenceMean;
    assert_eq!(
        weights(&convention),
        "`level` is \"seq_mean\", must be one of \"token\", \"seq_sum\""
    );
}

/// The digest below is that of the scalar variant and is compared on every machine that runs this test.
#[test]
fn every_instruction_set_and_number_of_threads_gives_the_same_bits() {
    let (rows, width) = (11, 3001);
    let mut numbers = Numbers::new(23);
    let policy: Vec<f64> = (0..rows * width).map(|_| -8.0 * numbers.unit()).collect();
    let old: Vec<f64> = policy.iter().map(|p| p + numbers.unit() - 0.5).collect();
    let mask: Vec<u8> = (0..rows * width)
        .map(|_| u8::from(numbers.unit() < 0.7))
        .collect();
    let advantages: Vec<f64> = (0..rows).map(|_| numbers.unit() - 0.5).collect();
    let narrow = |values: &[f64]| -> Vec<f32> { values.iter().map(|&x| x as f32).collect() };
    let (policy32, old32) = (narrow(&policy), narrow(&old));
    let layout = padded(rows, width, Valid::Mask(&mask));
    let process = Process::mine();
    for threads in [1, 2, 3] {
        process.set_threads(threads);
        let digests = process.on_every_isa(|| {
            let mut digest = Digest::default();
            for level in [Level::Token, Level::SequenceMean, Level::SequenceSum] {
                let count = if level == Level::Token {
                    rows * width
                } else {
                    rows
                };
                let (mut wide, mut slim) = (vec![0.0; count], vec![0.0; count]);
                importance_ratio(&policy, &old, level, &layout, &mut wide).expect("good");
                importance_ratio(&policy32, &old32, level, &layout, &mut slim).expect("good");
                digest.add_f64(&wide);
                digest.add_f32(&slim);
            }
            let wide = ratio_statistics(&policy, &old, 0.2, 0.2, Some(&advantages), &layout);
            let slim = ratio_statistics(&policy32, &old32, 0.2, 0.2, None, &layout);
            for found in [wide, slim] {
                let named = found.expect("good").named();
                let values: Vec<f64> = named.iter().map(|named| named.1).collect();
                digest.add_f64(&values);
            }
            digest.value()
        });
        for (isa, digest) in digests {
            assert_eq!(
                digest, RATIO_DIGEST,
                "{isa}, {threads} threads: {digest:#x}"
            );
        }
    }
}

const RATIO_DIGEST: u64 = 0x0f1b_510c_a90a_6677;
