//! Advantages on every instruction set and any number of threads: the same bits.

use rlkernels::advantages::{
    Baseline, Convention, EpsMode, Scale, Stages, group_advantages, normalise_then_sum,
};

use crate::variants::{Digest, Numbers, Process, on_every_isa};

/// Groups of every kind: ordinary, constant, nearly constant, partly unscored, huge and tiny.
fn rewards(numbers: &mut Numbers, groups: usize, size: usize) -> Vec<f64> {
    let mut rewards = Vec::with_capacity(groups * size);
    for group in 0..groups {
        let kind = (numbers.word() % 16, group);
        for _ in 0..size {
            let x = numbers.unit() - 0.3;
            rewards.push(match kind.0 {
                0 => 0.1,
                1 => 1.0 + (x * 8.0).round() * 2f64.powi(-52),
                2 if x < 0.0 => -f64::NAN,
                3 => x * 2f64.powi(700),
                4 => x * 2f64.powi(-900),
                5 => (x * 3.0).round(),
                _ => x,
            });
        }
    }
    rewards
}

fn add_all(digest: &mut Digest, rewards: &[f64], size: usize) {
    let narrow: Vec<f32> = rewards.iter().map(|&x| (x % 1e30) as f32).collect();
    let (mut out, mut out_32) = (vec![9.0; rewards.len()], vec![9.0; rewards.len()]);
    let modes = [EpsMode::Add, EpsMode::Inside, EpsMode::Threshold];
    for scale in [Scale::Group, Scale::Batch, Scale::None] {
        for (eps_mode, eps) in modes.into_iter().zip([1e-4, 1e-8, 0.25]) {
            for (baseline, ddof) in [(Baseline::Mean, 0), (Baseline::LeaveOneOut, 1)] {
                if size < 2 && baseline == Baseline::LeaveOneOut {
                    continue;
                }
                let convention = Convention {
                    scale,
                    ddof,
                    eps,
                    eps_mode,
                    baseline,
                };
                group_advantages(rewards, size as i64, &convention, &mut out).unwrap();
                group_advantages(&narrow, size as i64, &convention, &mut out_32).unwrap();
                digest.add_f64(&out);
                digest.add_f32(&out_32);
            }
        }
    }
}

fn digest() -> u64 {
    let mut digest = Digest::default();
    let mut numbers = Numbers::new(5);
    for size in (1..=20).chain([31, 32, 33, 56, 63, 64, 65, 130]) {
        let rewards = rewards(&mut numbers, 21, size);
        add_all(&mut digest, &rewards, size);
        let ordinary: Vec<f64> = (0..size * 18).map(|_| numbers.unit()).collect();
        add_all(&mut digest, &ordinary, size);
        let stages = Stages {
            group_ddof: 1,
            group_eps: 1e-4,
            batch_ddof: 1,
            batch_eps: 1e-4,
        };
        let mut out = vec![9.0; size * 9];
        normalise_then_sum(&ordinary, &[1.0, -0.5], size as i64, &stages, &mut out).unwrap();
        digest.add_f64(&out);
    }
    digest.value()
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for (isa, value) in on_every_isa(digest) {
        assert_eq!(format!("{value:#018x}"), "0xc907b8deeac2c036", "{isa}");
    }
}

#[test]
fn every_number_of_threads_gives_the_same_bits_and_the_first_error() {
    let process = Process::mine();
    process.set_threads(1);
    let mut rewards = rewards(&mut Numbers::new(6), 23_000, 12); // more than a call works on alone
    let convention = Convention {
        scale: Scale::Group,
        ddof: 1,
        eps: 0.0,
        eps_mode: EpsMode::Add,
        baseline: Baseline::Mean,
    };
    let mut out = vec![0.0; rewards.len()];
    let mut bits = |rewards: &[f64]| {
        group_advantages(rewards, 12, &convention, &mut out).unwrap();
        let mut digest = Digest::default();
        digest.add_f64(&out);
        digest.value()
    };
    let serial = bits(&rewards);
    for threads in [2, 3] {
        process.set_threads(threads);
        assert_eq!(bits(&rewards), serial, "{threads} threads");
    }
    (rewards[100_000], rewards[270_001]) = (f64::INFINITY, f64::NEG_INFINITY);
    let error = group_advantages(&rewards, 12, &convention, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`rewards[100000]` is inf, must be finite (or NaN for \"not scored\")"
    );
}
