#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::kl::{Estimator, KlRatio, Samples, full_kl, token_kl};
use rlkernels::rows::{Rows, Valid};
use rlkernels_fuzz::{Number, bits32, bits64, everywhere, f32s, f64s};

#[derive(Arbitrary, Debug)]
struct Input {
    pairs: Vec<(Number, Number)>,
    estimator: u8,
    rows: u8,
    mask: Vec<bool>,
    lengths: Vec<i8>,
    layout: u8,
    ratio: u8,
}

fuzz_target!(|input: Input| {
    let (policy, reference): (Vec<Number>, Vec<Number>) = input.pairs.iter().copied().unzip();
    let estimator = [Estimator::K1, Estimator::K2, Estimator::K3][usize::from(input.estimator % 3)];
    let ratio = [KlRatio::None, KlRatio::Token, KlRatio::Sequence][usize::from(input.ratio % 3)];
    let rows = usize::from(input.rows).max(1);
    let width = policy.len() / rows;
    let mask: Vec<u8> = input.mask.iter().map(|&m| u8::from(m)).collect();
    let lengths: Vec<i64> = input.lengths.iter().map(|&n| i64::from(n)).collect();
    let layout = match input.layout % 4 {
        0 => Rows::Padded {
            rows,
            width,
            valid: Valid::All,
        },
        1 => Rows::Padded {
            rows,
            width,
            valid: Valid::Mask(&mask),
        },
        2 => Rows::Padded {
            rows,
            width,
            valid: Valid::Prefix(&lengths),
        },
        _ => Rows::Ragged(&lengths),
    };
    let (p, r) = (f64s(&policy), f64s(&reference));
    everywhere(|| {
        let samples = Samples {
            policy: &p,
            reference: &r,
            old: Some(&r),
        };
        let mut out = vec![7.0; p.len()];
        let result = token_kl(&samples, estimator, ratio, &layout, &mut out);
        (result.map_err(|e| e.to_string()), bits64(&out))
    });
    let (p, r) = (f32s(&policy), f32s(&reference));
    everywhere(|| {
        let samples = Samples {
            policy: &p,
            reference: &r,
            old: Some(&r),
        };
        let mut out = vec![7.0; p.len()];
        let result = token_kl(&samples, estimator, ratio, &layout, &mut out);
        (result.map_err(|e| e.to_string()), bits32(&out))
    });
    let vocabulary = usize::from(input.rows);
    everywhere(|| {
        let mut out = vec![7.0; p.len() / vocabulary.max(1)];
        let result = full_kl(&p, &r, vocabulary, &mut out);
        (result.map_err(|e| e.to_string()), bits32(&out))
    });
});
