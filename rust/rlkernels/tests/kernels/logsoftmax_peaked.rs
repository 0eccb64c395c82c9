//! Entropies of rows with one likely token, whose other terms vanish beside it in a rounded sum.

use proptest::prelude::*;
use rlkernels::logsoftmax::{Bf16, F16, selective_log_softmax};

use crate::formats::Tested;
use crate::naive;
use crate::variants::Process;

/// 2u of `f64`.
const UNIT_64: f64 = f64::EPSILON;

fn entropy<F: Tested>(words: &[F::Word], vocabulary: usize, temperature: f64) -> Vec<f64> {
    let ids = vec![0; words.len() / vocabulary];
    let mut logprobs = vec![F::Result::default(); ids.len()];
    let mut entropy = logprobs.clone();
    let both = Some(&mut entropy[..]);
    selective_log_softmax::<F>(words, &ids, vocabulary, temperature, &mut logprobs, both).unwrap();
    entropy.into_iter().map(F::wide).collect()
}

/// k · 2u · max(1, H) of docs/definitions.md, "Accuracy"; the limit of `Tested` for `f64` is wider.
fn limit<F: Tested>(want: f64) -> f64 {
    let is_f64 = size_of::<F::Result>() == size_of::<f64>();
    want.max(1.0) * if is_f64 { 8.0 * UNIT_64 } else { F::LIMIT }
}

fn check<F: Tested>(logits: &[f64], temperature: f64) {
    let temperature = F::wide(F::result(temperature));
    let words: Vec<F::Word> = logits.iter().map(|&x| F::word(x)).collect();
    let real: Vec<f64> = words.iter().map(|&word| F::real(word)).collect();
    let want = naive::peaked_entropy(&real, temperature);
    let got = entropy::<F>(&words, real.len(), temperature)[0];
    let limit = limit::<F>(want);
    assert!(
        (got - want).abs() <= limit,
        "H {got:e}, want {want:e}, limit {limit:e}"
    );
}

/// A greatest logit of 0 somewhere, and others about `depth` below it, or impossible.
fn peaked(depth: std::ops::Range<f64>) -> impl Strategy<Value = Vec<f64>> {
    let others = prop::collection::vec((0f64..1.0, 0u8..10), 1..400);
    let spread = prop_oneof![Just(0.0), Just(1.0), Just(6.0)];
    (others, depth, spread, 0usize..400, 0u8..10).prop_map(|(others, depth, spread, top, rare)| {
        let mut logits: Vec<f64> = others
            .iter()
            .map(|&(x, kind)| {
                if kind < rare {
                    f64::NEG_INFINITY
                } else {
                    -depth - spread * x
                }
            })
            .collect();
        logits.insert(top % (others.len() + 1), 0.0);
        logits
    })
}

proptest! {
    #[test]
    fn others_count_where_they_vanish_beside_the_greatest_in_f64(
        logits in peaked(30.0..48.0), temperature in prop_oneof![Just(1.0), 0.05f64..5.0],
    ) {
        let scaled: Vec<f64> = logits.iter().map(|x| x * temperature).collect();
        check::<f64>(&scaled, temperature);
    }

    #[test]
    fn others_count_where_they_vanish_beside_the_greatest_in_f32(
        logits in peaked(10.0..28.0), temperature in prop_oneof![Just(1.0), 0.05f64..5.0],
    ) {
        let scaled: Vec<f64> = logits.iter().map(|x| x * temperature).collect();
        check::<f32>(&scaled, temperature);
        check::<Bf16>(&scaled, temperature);
        check::<F16>(&scaled, temperature);
    }
}

/// e^−40 is less than half a step of 1.
#[test]
fn fifty_two_tokens_forty_nats_below_have_an_entropy() {
    let mut logits = [-40.0; 53];
    logits[0] = 0.0;
    check::<f64>(&logits, 1.0);
}

/// Three tokens that share a lane with the greatest; 16 lanes of float32, 8 of float64.
#[test]
fn tokens_of_the_greatest_ones_lane_count() {
    for (lanes, depth) in [(16, 18.0), (8, 38.0)] {
        let mut logits = vec![f64::NEG_INFINITY; 4 * lanes];
        logits[0] = 0.0;
        (1..4).for_each(|i| logits[i * lanes] = -depth);
        if lanes == 16 {
            check::<f32>(&logits, 1.0);
        } else {
            check::<f64>(&logits, 1.0);
        }
    }
}

/// Rows in parts of a thread, segments of a row shared among threads, and short rows, on every instruction set.
#[test]
fn every_path_gives_the_same_bits() {
    let process = Process::mine();
    for (rows, vocabulary) in [(700, 331), (9, 23_000), (3, 110_003)] {
        let mut logits = vec![-41.0; rows * vocabulary];
        for (row, logits) in logits.chunks_mut(vocabulary).enumerate() {
            logits[row * 7919 % vocabulary] = 0.25;
        }
        let narrow: Vec<f32> = logits.iter().map(|&x| x as f32 / 2.0).collect();
        let mut results = process.on_every_isa(|| {
            [1, 2, 3].map(|threads| {
                process.set_threads(threads);
                [
                    entropy::<f64>(&logits, vocabulary, 1.0),
                    entropy::<f32>(&narrow, vocabulary, 1.0),
                ]
            })
        });
        let [first, ..] = results.remove(0).1;
        for (row, logits) in logits.chunks(vocabulary).enumerate() {
            let want = naive::peaked_entropy(logits, 1.0);
            let got = first[0][row];
            assert!(
                (got - want).abs() <= 8.0 * UNIT_64,
                "H {got:e}, want {want:e}"
            );
        }
        for (isa, threads) in results {
            assert!(threads.iter().all(|entropies| *entropies == first), "{isa}");
        }
    }
}
