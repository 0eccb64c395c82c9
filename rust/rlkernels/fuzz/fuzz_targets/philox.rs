#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::philox::{Draw, Draws, philox4x32_10, uniforms, xtc_coins};

#[derive(Arbitrary, Debug)]
struct Input {
    seed: u64,
    words: [Vec<i64>; 4],
    shift: u8,
    count: u8,
}

fuzz_target!(|input: Input| {
    let words = input
        .words
        .map(|words| words.iter().map(|w| w >> (input.shift % 64)).collect());
    let [round, prompt, sample, token]: [Vec<i64>; 4] = words;
    let draws = Draws {
        round: &round,
        prompt: &prompt,
        sample: &sample,
        token: &token,
    };
    let mut out = vec![7.0; usize::from(input.count % 8)];
    let mut coins = out.clone();
    let result = uniforms(input.seed, &draws, &mut out);
    assert_eq!(result, xtc_coins(input.seed, &draws, &mut coins));
    if result.is_err() {
        return;
    }
    for (index, numbers) in out.into_iter().zip(coins).enumerate() {
        let word = |words: &[i64]| words[if words.len() == 1 { 0 } else { index }] as u32;
        let draw = Draw {
            token: word(&token),
            sample: word(&sample),
            prompt: word(&prompt),
            round: word(&round),
        };
        assert_eq!(numbers, draw.numbers(input.seed));
        let counter = [draw.token, draw.sample, draw.prompt, draw.round];
        let words = philox4x32_10(counter, [input.seed as u32, (input.seed >> 32) as u32]);
        assert_eq!((numbers.0 * 4_294_967_296.0) as u32, words[0]); // its first 32 bits
        assert_eq!((numbers.1 * 4_294_967_296.0) as u32, words[2]);
        assert!((0.0..1.0).contains(&numbers.0) && (0.0..1.0).contains(&numbers.1));
    }
});
