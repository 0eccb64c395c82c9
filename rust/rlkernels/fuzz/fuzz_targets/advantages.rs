#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::advantages::{
    Baseline, Convention, Episodes, EpsMode, Scale, Stages, gae, group_advantages,
    normalise_then_sum,
};
use rlkernels::rows::Rows;
use rlkernels_fuzz::{Number, bits32, bits64, everywhere, f32s, f64s};

#[derive(Arbitrary, Debug)]
struct Input {
    rewards: Vec<Number>,
    group_size: i8,
    scale: u8,
    ddof: i8,
    eps: Number,
    eps_mode: u8,
    leave_one_out: bool,
    lengths: Vec<u8>,
    lambda: Number,
}

fuzz_target!(|input: Input| {
    let convention = Convention {
        scale: [Scale::Group, Scale::Batch, Scale::None][usize::from(input.scale % 3)],
        ddof: i64::from(input.ddof % 3),
        eps: input.eps.value(),
        eps_mode: [EpsMode::Add, EpsMode::Inside, EpsMode::Threshold]
            [usize::from(input.eps_mode % 3)],
        baseline: if input.leave_one_out {
            Baseline::LeaveOneOut
        } else {
            Baseline::Mean
        },
    };
    let size = i64::from(input.group_size);
    let rewards = f64s(&input.rewards);
    everywhere(|| {
        let mut out = vec![7.0; rewards.len()];
        let result = group_advantages(&rewards, size, &convention, &mut out);
        if result.is_ok() {
            assert!(out.iter().all(|x| !x.is_nan()), "{out:?}");
        }
        (result.map_err(|e| e.to_string()), bits64(&out))
    });
    let rewards = f32s(&input.rewards);
    everywhere(|| {
        let mut out = vec![7.0; rewards.len()];
        let result = group_advantages(&rewards, size, &convention, &mut out);
        (result.map_err(|e| e.to_string()), bits32(&out))
    });
    let stages = Stages {
        group_ddof: i64::from(input.ddof % 3),
        group_eps: input.eps.value(),
        batch_ddof: i64::from(input.scale % 3),
        batch_eps: input.lambda.value(),
    };
    let weights = [1.0, input.lambda.value() as f32];
    everywhere(|| {
        let mut out = vec![7.0; rewards.len() / weights.len()];
        let result = normalise_then_sum(&rewards, &weights, size, &stages, &mut out);
        if result.is_ok() {
            assert!(out.iter().all(|x| !x.is_nan()), "{out:?}");
        }
        (result.map_err(|e| e.to_string()), bits32(&out))
    });
    let lengths: Vec<i64> = input.lengths.iter().map(|&n| i64::from(n)).collect();
    let (rewards, rows) = (f64s(&input.rewards), Rows::Ragged(&lengths));
    let episodes = Episodes {
        rewards: &rewards,
        values: &rewards,
        bootstrap: None,
        terminal: None,
    };
    let (gamma, lambda) = (input.eps.value(), input.lambda.value());
    everywhere(|| {
        let mut out = vec![7.0; rewards.len()];
        let result = gae(&episodes, &rows, gamma, lambda, &mut out);
        (result.map_err(|e| e.to_string()), bits64(&out))
    });
});
