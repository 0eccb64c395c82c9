//! Times `group_advantages` on every instruction set: the least of many repeats, in microseconds.

use std::time::Instant;

use rlkernels::advantages::{Baseline, Convention, EpsMode, Scale, group_advantages};
use rlkernels::isa;

fn main() {
    let convention = Convention {
        scale: Scale::Group,
        ddof: 1,
        eps: 1e-4,
        eps_mode: EpsMode::Add,
        baseline: Baseline::Mean,
    };
    for isa in isa::available() {
        isa::choose(isa).expect("available");
        print!("{isa:8}");
        for (groups, size) in [
            (16, 4),
            (64, 8),
            (256, 16),
            (1024, 32),
            (500, 12),
            (64, 256),
            (16384, 64),
        ] {
            let rewards: Vec<f64> = (0..groups * size).map(|i| f64::from(i).sin()).collect();
            let size = i64::from(size);
            let mut out = vec![0.0; rewards.len()];
            let time =
                least(|| group_advantages(&rewards, size, &convention, &mut out).expect("valid"));
            print!("  {groups}x{size} {time:.3}");
        }
        let rewards: Vec<f64> = (0..32768).map(|i| f64::from(i % 31).sin()).collect();
        let mut out = vec![0.0; rewards.len()];
        let batch = Convention {
            scale: Scale::Batch,
            ..convention
        };
        let time = least(|| group_advantages(&rewards, 32, &batch, &mut out).expect("valid"));
        println!("  1024x32 batch {time:.3}");
    }
}

fn least(mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..300 {
        let start = Instant::now();
        for _ in 0..10 {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e5);
    }
    best
}
