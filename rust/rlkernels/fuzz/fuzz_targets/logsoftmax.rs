#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::logsoftmax::{
    Bf16, F16, Format, selective_log_softmax, selective_log_softmax_backward,
};
use rlkernels_fuzz::{Number, everywhere, f32s, f64s};

#[derive(Arbitrary, Debug)]
struct Input {
    logits: Vec<Number>,
    words: Vec<u16>,
    vocabulary: u8,
    ids: Vec<i16>,
    temperature: Number,
}

fuzz_target!(|input: Input| {
    let vocabulary = usize::from(input.vocabulary);
    run::<f32>(&f32s(&input.logits), vocabulary, &input, 0.0, 0.0);
    run::<f64>(&f64s(&input.logits), vocabulary, &input, 0.0, 0.0);
    run::<F16>(&input.words, vocabulary, &input, 0, 0.0);
    run::<Bf16>(&input.words, vocabulary, &input, 0, 0.0);
});

fn run<F: Format>(
    logits: &[F::Word],
    vocabulary: usize,
    input: &Input,
    word: F::Word,
    zero: F::Result,
) where
    F::Word: std::fmt::Debug,
    F::Result: std::fmt::Debug,
{
    let ids: Vec<i64> = input.ids.iter().map(|&id| i64::from(id)).collect();
    let temperature = input.temperature.value();
    everywhere(|| {
        let (mut logprobs, mut entropy) = (vec![zero; ids.len()], vec![zero; ids.len()]);
        let forward = selective_log_softmax::<F>(
            logits,
            &ids,
            vocabulary,
            temperature,
            &mut logprobs,
            Some(&mut entropy),
        );
        let mut gradient = vec![word; logits.len()];
        let grads = logprobs.clone();
        let backward = selective_log_softmax_backward::<F>(
            logits,
            &ids,
            &grads,
            Some(&entropy),
            vocabulary,
            temperature,
            &mut gradient,
        );
        // As text: every kernel writes one NaN only, and −0 and 0 differ in it.
        format!("{forward:?} {logprobs:?} {entropy:?} {backward:?} {gradient:?}")
    });
}
