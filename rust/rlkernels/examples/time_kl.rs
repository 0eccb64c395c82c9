//! Times the KL kernels on every instruction set: the least of many repeats, in microseconds.

use std::time::Instant;

use rlkernels::isa;
use rlkernels::kl::{Estimator, KlRatio, Reduction, Samples, full_kl, sequence_kl, token_kl};
use rlkernels::rows::{Rows, Valid};

fn main() {
    for isa in isa::available() {
        isa::choose(isa).expect("available");
        for (count, width) in [
            (1, 128),
            (1, 2048),
            (32, 512),
            (32, 2048),
            (128, 2048),
            (256, 4096),
        ] {
            let slots = count * width;
            let policy: Vec<f32> = (0..slots).map(|i| -2.0 + (i as f32).sin()).collect();
            let close: Vec<f32> = (0..slots)
                .map(|i| policy[i] + 0.2 * (i as f32 * 1.7).sin())
                .collect();
            let wide: Vec<f64> = policy.iter().map(|&x| f64::from(x)).collect();
            let wide_close: Vec<f64> = close.iter().map(|&x| f64::from(x)).collect();
            let mask: Vec<u8> = (0..slots).map(|i| u8::from(i % 3 != 0)).collect();
            let (mut out, mut sums, mut wide_out) =
                (vec![0.0; slots], vec![0.0; count], vec![0.0; slots]);
            let rows = |valid| Rows::Padded {
                rows: count,
                width,
                valid,
            };
            let (all, masked) = (rows(Valid::All), rows(Valid::Mask(&mask)));
            let samples = Samples::on_policy(&policy, &close);
            let k3 = Estimator::K3;
            let no = KlRatio::None;
            let tokens = least(|| token_kl(&samples, k3, no, &all, &mut out).expect("valid"));
            let with_mask = least(|| token_kl(&samples, k3, no, &masked, &mut out).expect("valid"));
            let sum = least(|| {
                sequence_kl(&samples, k3, no, &all, Reduction::Sum, &mut sums).expect("valid");
            });
            let samples = Samples::on_policy(&wide, &wide_close);
            let double = least(|| token_kl(&samples, k3, no, &all, &mut wide_out).expect("valid"));
            let full = least(|| full_kl(&policy, &close, width, &mut sums).expect("valid"));
            println!(
                "{isa:8} {count}x{width}: k3 {tokens:.3}, masked {with_mask:.3}, sums {sum:.3}, f64 {double:.3}, full {full:.3}"
            );
        }
    }
}

fn least(mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..100 {
        let start = Instant::now();
        call();
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    best
}
