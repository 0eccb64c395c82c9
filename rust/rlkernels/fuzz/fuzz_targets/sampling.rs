#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::sampling::{Batch, Filters, Logits, Order, Ties, filtered_logprobs, sample_tokens};
use rlkernels_fuzz::{Number, bits64, everywhere, f32s, f64s};

#[derive(Arbitrary, Debug)]
struct Input {
    logits: Vec<Number>,
    repeat: u8,
    rows: u8,
    half: bool,
    single: bool,
    mlx_order: bool,
    ties: u8,
    numbers: [Number; 8],
    top_k: u16,
    history: Vec<i8>,
    coins: [u8; 3],
    uniforms: [u8; 3],
}

fuzz_target!(|input: Input| {
    let rows = usize::from(input.rows % 4);
    let long = input.logits.repeat(1 + usize::from(input.repeat % 64)); // several blocks of tokens
    let vocabulary = long.len() / rows.max(1);
    let (singles, doubles) = (f32s(&long), f64s(&long));
    let halves: Vec<u16> = singles.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let length = rows * vocabulary;
    let logits = match (input.half, input.single) {
        (true, true) => Logits::F16(&halves[..length]),
        (true, false) => Logits::Bf16(&halves[..length]),
        (false, true) => Logits::F32(&singles[..length]),
        (false, false) => Logits::F64(&doubles[..length]),
    };
    let ids = input.history.len() / rows.max(1) * rows;
    let history: Vec<i64> = input.history[..ids]
        .iter()
        .map(|&id| i64::from(id))
        .collect();
    let unit = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|&b| f64::from(b) / 255.5)
            .collect::<Vec<_>>()
    };
    let (coins, uniforms) = (unit(&input.coins[..rows]), unit(&input.uniforms[..rows]));
    let share = |number: Number| (number.value() / 16.0).abs(); // in [0, 1] half the time
    let [
        temperature,
        top_p,
        min_p,
        probability,
        threshold,
        penalty,
        presence,
        frequency,
    ] = input.numbers;
    let filters = Filters {
        order: if input.mlx_order {
            Order::MlxLm
        } else {
            Order::Hf
        },
        ties: Ties::ALL[usize::from(input.ties) % Ties::ALL.len()],
        temperature: temperature.value().abs(),
        top_k: usize::from(input.top_k),
        top_p: share(top_p),
        min_p: share(min_p),
        xtc_probability: share(probability),
        xtc_threshold: share(threshold),
        min_tokens_to_keep: usize::from(input.top_k % 50),
        repetition_penalty: penalty.value().abs(),
        presence_penalty: presence.value(),
        frequency_penalty: frequency.value(),
    };
    let batch = Batch {
        logits,
        rows,
        vocabulary,
        history: Some(&history),
        generated: Some(&history),
        logit_bias: None,
        xtc_coins: Some(&coins),
        xtc_special_tokens: &history[..history.len().min(2)],
    };
    everywhere(|| {
        let mut out = vec![7.0_f64; length];
        let result = filtered_logprobs(&batch, &filters, &mut out);
        let mut single = vec![7.0_f32; length];
        let same = filtered_logprobs(&batch, &filters, &mut single);
        assert_eq!(result.is_ok(), same.is_ok());
        if result.is_ok() {
            assert!(single.iter().zip(&out).all(|(&x, &y)| x == y as f32));
        }
        let (mut tokens, mut behaviour) = (vec![-1; rows], vec![7.0; rows]);
        let drawn = sample_tokens(&batch, &filters, &uniforms, &mut tokens, &mut behaviour);
        for row in 0..if result.is_ok() { rows } else { 0 } {
            let row_out = &out[row * vocabulary..(row + 1) * vocabulary];
            let mass: f64 = row_out.iter().map(|x| x.exp()).sum();
            assert!((mass - 1.0).abs() < 1e-9, "{mass}");
            if drawn.is_ok() {
                assert_eq!(behaviour[row], row_out[tokens[row] as usize]);
                assert!(behaviour[row] > f64::NEG_INFINITY);
            }
        }
        let errors = (
            result.map_err(|e| e.to_string()),
            drawn.map_err(|e| e.to_string()),
        );
        (errors, bits64(&out), tokens, bits64(&behaviour))
    });
});
