#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::ratio::{
    Correction, Level, WeightConvention, importance_ratio, importance_weights, ratio_statistics,
};
use rlkernels::rows::{Rows, Valid};
use rlkernels_fuzz::{Number, bits64, everywhere, f64s};

#[derive(Arbitrary, Debug)]
struct Input {
    pairs: Vec<(Number, Number)>,
    level: u8,
    masked: bool,
    c_min: Option<Number>,
    c_max: Number,
    rows: u8,
    mask: Vec<bool>,
    gains: Vec<Number>,
}

fuzz_target!(|input: Input| {
    let (policy, old): (Vec<Number>, Vec<Number>) = input.pairs.iter().copied().unzip();
    let (policy, old) = (f64s(&policy), f64s(&old));
    let level =
        [Level::Token, Level::SequenceMean, Level::SequenceSum][usize::from(input.level % 3)];
    let rows = usize::from(input.rows).max(1);
    let mask: Vec<u8> = input.mask.iter().map(|&m| u8::from(m)).collect();
    let width = policy.len() / rows;
    let layout = if mask.len() == policy.len() {
        Rows::Padded {
            rows,
            width,
            valid: Valid::Mask(&mask),
        }
    } else {
        Rows::Padded {
            rows,
            width,
            valid: Valid::All,
        }
    };
    let results = if level == Level::Token {
        policy.len()
    } else {
        rows
    };
    let convention = WeightConvention {
        correction: if input.masked {
            Correction::Masked
        } else {
            Correction::Truncated
        },
        level,
        c_min: input.c_min.map(Number::value),
        c_max: input.c_max.value(),
    };
    let gains = f64s(&input.gains);
    everywhere(|| {
        let mut ratios = vec![7.0; results];
        let ratio = importance_ratio(&policy, &old, level, &layout, &mut ratios);
        let mut weights = vec![7.0; results];
        let weight = importance_weights(&policy, &old, &convention, &layout, &mut weights);
        let gains = (gains.len() == rows).then_some(&gains[..]);
        let statistics = ratio_statistics(&policy, &old, 0.2, 0.28, gains, &layout);
        (
            ratio.map_err(|e| e.to_string()),
            weight.map_err(|e| e.to_string()),
            bits64(&ratios),
            bits64(&weights),
            format!("{statistics:?}"),
        )
    });
});
