//! Advantages against the definition, and the rules that no formula shows.

use proptest::prelude::*;
use rlkernels::Error;
use rlkernels::advantages::{
    Baseline, Convention, EpsMode, Scale, Stages, group_advantages, normalise_then_sum,
};

use crate::naive;

const TRL: Convention = Convention {
    scale: Scale::Group,
    ddof: 1,
    eps: 1e-4,
    eps_mode: EpsMode::Add,
    baseline: Baseline::Mean,
};

fn run(rewards: &[f64], group_size: i64, convention: &Convention) -> Result<Vec<f64>, Error> {
    let mut out = vec![f64::NAN; rewards.len()];
    group_advantages(rewards, group_size, convention, &mut out).map(|()| out)
}

/// The definition for finite rewards.
fn defined(rewards: &[f64], size: usize, c: &Convention) -> Vec<f64> {
    let divisor = |values: &[f64]| {
        let std = naive::std(values, c.ddof as usize);
        match c.eps_mode {
            EpsMode::Add => std + c.eps,
            EpsMode::Inside => (std * std + c.eps).sqrt(),
            EpsMode::Threshold if std < c.eps => f64::INFINITY,
            EpsMode::Threshold => std,
        }
    };
    let mut out = Vec::new();
    for group in rewards.chunks(size) {
        let by = match c.scale {
            Scale::Group => divisor(group),
            Scale::Batch => divisor(rewards),
            Scale::None => 1.0,
        };
        for (i, reward) in group.iter().enumerate() {
            let others: Vec<f64> = group
                .iter()
                .enumerate()
                .filter(|&(j, _)| j != i || c.baseline == Baseline::Mean)
                .map(|(_, r)| *r)
                .collect();
            let constant = group.iter().all(|r| r == &group[0]);
            out.push(if constant {
                0.0
            } else {
                (reward - naive::mean(&others)) / by
            });
        }
    }
    out
}

fn convention() -> impl Strategy<Value = Convention> {
    (
        prop::sample::select(vec![Scale::Group, Scale::Batch, Scale::None]),
        0i64..=1,
        prop::sample::select(vec![0.0, 1e-8, 1e-4, 0.3]),
        prop::sample::select(vec![EpsMode::Add, EpsMode::Inside, EpsMode::Threshold]),
        prop::sample::select(vec![Baseline::Mean, Baseline::LeaveOneOut]),
    )
        .prop_map(|(scale, ddof, eps, eps_mode, baseline)| Convention {
            scale,
            ddof,
            eps,
            eps_mode,
            baseline,
        })
}

proptest! {
    #[test]
    fn every_convention_is_its_definition(
        rewards in prop::collection::vec(-4i32..=4, 840), size in prop::sample::select(vec![2i64, 3, 4, 5, 6, 7, 8, 12, 24, 40, 60, 105]),
        convention in convention()
    ) {
        let rewards: Vec<f64> = rewards.into_iter().map(|r| f64::from(r) * 0.37).collect();
        let want = defined(&rewards, size as usize, &convention);
        let got = run(&rewards, size, &convention).unwrap();
        for (got, want) in got.iter().zip(want) {
            prop_assert!((got - want).abs() <= 1e-12 * (1.0 + want.abs()), "{got} is not {want}");
        }
    }

    #[test]
    fn a_power_of_two_changes_nothing_without_eps(
        rewards in prop::collection::vec(-1e3f64..1e3, 8), exponent in -950i32..=1000
    ) {
        let convention = Convention { eps: 0.0, ..TRL };
        let scaled: Vec<f64> = rewards.iter().map(|r| r * 2f64.powi(exponent)).collect();
        let back: Vec<f64> = scaled.iter().map(|r| r / 2f64.powi(exponent)).collect();
        let want = run(&back, 4, &convention).unwrap();
        let got = run(&scaled, 4, &convention).unwrap();
        for (got, want) in got.iter().zip(want) {
            prop_assert!((got - want).abs() <= 1e-12, "{got} is not {want} at 2^{exponent}");
        }
    }
}

#[test]
fn an_unscored_member_changes_nothing_for_the_others() {
    let with = run(&[1.0, f64::NAN, 0.0, 3.0], 4, &TRL).unwrap();
    let without = run(&[1.0, 0.0, 3.0], 3, &TRL).unwrap();
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-15; // the two may go different ways
    assert!(close(with[0], without[0]) && close(with[2], without[1]) && close(with[3], without[2]));
    assert_eq!(with[1], 0.0);
    assert_eq!(run(&[f64::NAN, 5.0], 2, &TRL).unwrap(), [0.0, 0.0]);
}

proptest! {
    #[test]
    fn normalise_then_sum_is_its_definition(
        values in prop::collection::vec(-4i32..=4, 72), size in prop::sample::select(vec![2i64, 3, 4, 8]),
        ddof in (0i64..=1, 0i64..=1), unscored in prop::collection::vec(any::<bool>(), 72)
    ) {
        let weights = [1.0, -0.5, 2.0];
        let mut rewards: Vec<f64> = values.iter().map(|&r| f64::from(r) * 0.37).collect();
        for (reward, unscored) in rewards.iter_mut().zip(unscored) {
            if unscored && *reward < 0.0 {
                *reward = f64::NAN;
            }
        }
        let stages = Stages { group_ddof: ddof.0, group_eps: 1e-4, batch_ddof: ddof.1, batch_eps: 1e-4 };
        let column = |f: usize| -> Vec<f64> { rewards.chunks(3).map(|row| row[f]).collect() };
        let scores: Vec<Vec<f64>> = (0..3).map(|f| naive::z_scores(&column(f), size as usize, ddof.0 as usize, 1e-4)).collect();
        let sums: Vec<f64> = (0..24)
            .map(|row| {
                if rewards[row * 3..row * 3 + 3].iter().all(|r| r.is_nan()) {
                    return f64::NAN;
                }
                (0..3).map(|f| weights[f] * scores[f][row]).sum()
            })
            .collect();
        let want = naive::z_scores(&sums, 24, ddof.1 as usize, 1e-4);
        let mut got = [9.0; 24];
        normalise_then_sum(&rewards, &weights, size, &stages, &mut got).unwrap();
        let spread = naive::spread(&sums);
        for (got, want) in got.iter().zip(want) {
            prop_assert!(spread < 1e-9 || (got - want).abs() <= 1e-10 * (1.0 + want.abs()), "{got} is not {want}");
        }
    }
}

#[test]
fn wrong_inputs_of_several_functions_are_named() {
    let stages = Stages {
        group_ddof: 1,
        group_eps: 1e-4,
        batch_ddof: 1,
        batch_eps: 1e-4,
    };
    let failed = |rewards: &[f64], weights: &[f64], size, stages| {
        let mut out = vec![0.0; rewards.len() / weights.len().max(1)];
        normalise_then_sum(rewards, weights, size, &stages, &mut out)
            .unwrap_err()
            .to_string()
    };
    let rewards = [1.0, 2.0, 3.0, f64::INFINITY];
    assert_eq!(
        failed(&rewards, &[1.0, 1.0], 2, stages),
        "`rewards[1, 1]` is inf, must be finite (or NaN for \"not scored\")"
    );
    assert_eq!(
        failed(&rewards, &[1.0, f64::NAN], 2, stages),
        "`weights[1]` is NaN, must be finite"
    );
    assert_eq!(
        failed(&rewards, &[], 2, stages),
        "`weights` is empty, must hold at least one element"
    );
    assert_eq!(
        failed(&rewards[..3], &[1.0], 2, stages),
        "`rewards` has 3 elements, must be a multiple of `group_size` 2"
    );
    assert_eq!(
        failed(
            &[1.0, 2.0],
            &[1e308, 1e308],
            1,
            Stages {
                batch_ddof: 3,
                ..stages
            }
        ),
        "`batch_ddof` is 3, must be 0 (divide by n) or 1 (divide by n - 1)"
    );
    assert_eq!(
        failed(&[1.0, 1.0, 2.0, 2.0], &[1.7e308, 1.7e308], 2, stages),
        "the weighted sum of the scores of `rewards[0]` is -inf, must be finite; make `weights` smaller"
    );
}

#[test]
fn wrong_inputs_are_named_with_their_values() {
    let other = Convention {
        baseline: Baseline::LeaveOneOut,
        ..TRL
    };
    let cases: [(&[f64], i64, Convention, &str); 8] = [
        (
            &[],
            1,
            TRL,
            "`rewards` is empty, must hold at least one element",
        ),
        (&[1.0], 0, TRL, "`group_size` is 0, must be at least 1"),
        (
            &[1.0; 3],
            2,
            TRL,
            "`rewards` has 3 elements, must be a multiple of `group_size` 2",
        ),
        (
            &[1.0, f64::NEG_INFINITY],
            2,
            TRL,
            "`rewards[1]` is -inf, must be finite (or NaN for \"not scored\")",
        ),
        (
            &[1.0],
            1,
            other,
            "`group_size` is 1, must be at least 2 with baseline \"leave-one-out\": there is no other to take the mean of",
        ),
        (
            &[1.0],
            1,
            Convention { ddof: 2, ..TRL },
            "`ddof` is 2, must be 0 (divide by n) or 1 (divide by n - 1)",
        ),
        (
            &[1.0],
            1,
            Convention { eps: -1.0, ..TRL },
            "`eps` is -1 in float64, must be finite and at least 0",
        ),
        (
            &[1.0],
            1,
            Convention {
                eps: f64::NAN,
                ..TRL
            },
            "`eps` is NaN in float64, must be finite and at least 0",
        ),
    ];
    for (rewards, group_size, convention, message) in cases {
        let error = run(rewards, group_size, &convention).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
