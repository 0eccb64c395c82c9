//! Filters and draws against a sampler that sorts everything, on every instruction set and number of threads.

use proptest::prelude::*;
use rlkernels::sampling::{Batch, Filters, Order, Ties};

use crate::naive::sampling::{self as naive, batch, logprobs, samples, settings};
use crate::variants::{Digest, Numbers, Process};

const INF: f64 = f64::INFINITY;
/// What a float64 sampler may move a threshold or a uniform by.
const ETA: f64 = 1.0 / (1u64 << 40) as f64;

/// The filters with every active threshold moved by −η, 0 and η.
fn neighbours(filters: &Filters) -> Vec<Filters> {
    let shifts = |active: bool| {
        if active {
            vec![0.0, -ETA, ETA]
        } else {
            vec![0.0]
        }
    };
    let mut result = Vec::new();
    for p in shifts(filters.top_p < 1.0) {
        for m in shifts(filters.min_p > 0.0) {
            for x in shifts(filters.xtc_probability > 0.0) {
                let mut moved = *filters;
                moved.top_p = (filters.top_p + p).clamp(0.0, 1.0);
                moved.min_p = (filters.min_p + m).clamp(0.0, 1.0);
                moved.xtc_threshold = (filters.xtc_threshold + x).clamp(0.0, 1.0);
                result.push(moved);
            }
        }
    }
    result
}

fn close(got: &[f64], want: &[f64]) -> bool {
    got.iter().zip(want).all(|(&got, &want)| {
        (got == -INF && want == -INF) || (got - want).abs() <= 1e-12 * (1.0 + want.abs())
    })
}

fn filters() -> impl Strategy<Value = Filters> {
    let order = prop::sample::select(vec![Order::Hf, Order::MlxLm]);
    let ties = prop::sample::select(Ties::ALL.to_vec());
    let temperature = prop_oneof![Just(1.0), Just(0.0), 0.05..3.0];
    let top_k = prop_oneof![Just(0usize), Just(1), 0usize..60, 0usize..2000];
    let share =
        |off: f64| prop_oneof![2 => Just(off), 1 => 0.0..=1.0, 1 => Just(0.95), 1 => Just(0.0)];
    let xtc = (
        prop_oneof![Just(0.0), Just(0.5)],
        prop_oneof![0.0..0.5, Just(0.01), Just(0.0)],
    );
    (
        (order, ties),
        temperature,
        top_k,
        share(1.0),
        share(0.0),
        xtc,
        (
            prop_oneof![Just(1.0), 0.5..2.0],
            prop_oneof![2 => Just(1usize), 1 => 1usize..60],
            prop_oneof![Just(0.0), -1.0..2.0],
            prop_oneof![Just(0.0), -1.0..2.0],
        ),
    )
        .prop_map(
            |(
                (order, ties),
                temperature,
                top_k,
                top_p,
                min_p,
                (xtc_probability, xtc_threshold),
                (repetition_penalty, min_tokens_to_keep, presence_penalty, frequency_penalty),
            )| Filters {
                order,
                ties,
                temperature,
                min_tokens_to_keep,
                top_k,
                top_p,
                min_p,
                xtc_probability,
                xtc_threshold,
                repetition_penalty,
                presence_penalty,
                frequency_penalty,
            },
        )
}

/// Rows that are flat or peaked, on a grid (so with ties) or not, some tokens impossible.
fn row() -> impl Strategy<Value = Vec<f64>> {
    let width = prop_oneof![1usize..40, 100usize..1500];
    (
        width,
        any::<u64>(),
        prop::sample::select(vec![0.0, 1e-9, 0.5, 3.0, 30.0]),
        any::<bool>(),
        0.0..0.6,
    )
        .prop_map(|(width, seed, spread, grid, impossible)| {
            let mut numbers = Numbers::new(seed);
            let mut row: Vec<f64> = (0..width)
                .map(|_| {
                    let x = (numbers.unit() + numbers.unit() + numbers.unit() - 1.5) * spread;
                    let x = if grid {
                        (x * 8.0).round() / 8.0
                    } else {
                        f64::from(x as f32)
                    };
                    if numbers.unit() < impossible { -INF } else { x }
                })
                .collect();
            row[width / 2] = spread; // one at least can be drawn
            row
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_kept_and_drawn_is_what_sorting_everything_gives(
        row in row(), filters in filters(), coin in 0.0..1.0, u in prop_oneof![Just(0.0), 0.0..1.0],
        ids in prop::collection::vec(any::<prop::sample::Index>(), 0..5), biased: bool,
    ) {
        let history: Vec<i64> = ids.iter().map(|id| id.index(row.len() + 1) as i64 - 1).collect();
        let generated: Vec<i64> = history.iter().flat_map(|&id| [id; 2]).chain([0, -1]).collect();
        let special: Vec<i64> = history.iter().copied().filter(|&id| id >= 0).collect();
        let bias: Vec<f64> = (0..row.len()).map(|id| (id % 7) as f64 / 4.0 - 0.5).collect();
        let (coins, xtc) = ([coin], coin < filters.xtc_probability);
        let batch = Batch {
            history: Some(&history),
            generated: Some(&generated),
            logit_bias: biased.then_some(&bias),
            xtc_coins: Some(&coins),
            xtc_special_tokens: &special,
            ..batch(&row, row.len())
        };
        let penalised = naive::penalised(&row, &history, &batch, &filters);
        let want: Vec<_> =
            neighbours(&filters).iter().map(|f| naive::filtered(&penalised, f, xtc, &special)).collect();

        let got = logprobs(&batch, &filters);
        prop_assert!(want.iter().any(|want| close(&got, want)), "got {:?}\nwant {:?}", got, want[0]);

        let (tokens, behaviour) = samples(&batch, &filters, &[u]);
        let token = tokens[0] as usize;
        prop_assert_eq!(behaviour[0], got[token], "the log-prob of a token is that of its distribution");
        prop_assert!(got[token] > -INF);
        let right = want.iter().any(|want| [u, (u - ETA).max(0.0), (u + ETA).min(1.0 - ETA)]
            .iter().any(|&u| filters.temperature == 0.0 || naive::draw(want, u) == token));
        prop_assert!(right, "drew {} with {}", token, u);
    }
}

/// A batch of 3 rows of 20,000 logits: long enough for many blocks, crowded buckets and several threads.
fn large() -> (Vec<f64>, [f64; 3], Vec<i64>) {
    let mut numbers = Numbers::new(7);
    let scale = [0.01, 1.0, 8.0];
    let logits = (0..60_000)
        .map(|at| f64::from(((numbers.unit() + numbers.unit() - 1.0) * scale[at / 20_000]) as f32))
        .collect();
    let uniforms = [numbers.unit(), numbers.unit(), numbers.unit()];
    let history = (0..30)
        .map(|_| (numbers.unit() * 20_000.0) as i64)
        .collect();
    (logits, uniforms, history)
}

#[test]
fn every_instruction_set_and_number_of_threads_gives_the_same_bits() {
    let (logits, uniforms, history) = large();
    let coins = [0.0; 3];
    let batch = Batch {
        history: Some(&history),
        xtc_coins: Some(&coins),
        ..batch(&logits, 20_000)
    };
    for filters in settings() {
        let all = || {
            let (tokens, behaviour) = samples(&batch, &filters, &uniforms);
            let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            (tokens, bits(&behaviour), bits(&logprobs(&batch, &filters)))
        };
        let process = Process::mine();
        let mut results = process.on_every_isa(all);
        let (_, first) = results.remove(0);
        process.set_threads(3); // rows are shared out alike on every instruction set
        results.push((rlkernels::isa::current(), all()));
        for (isa, result) in results {
            assert!(result == first, "{isa} differs with {filters:?}");
        }
    }
}

#[test]
fn long_rows_agree_with_sorting() {
    let (logits, uniforms, history) = large();
    let coins = [0.0; 3];
    let batch = Batch {
        history: Some(&history),
        xtc_coins: Some(&coins),
        ..batch(&logits, 20_000)
    };
    for filters in settings() {
        let got = logprobs(&batch, &filters);
        let (tokens, _) = samples(&batch, &filters, &uniforms);
        for row in 0..3 {
            let history = &history[row * 10..row * 10 + 10];
            let at = row * 20_000..row * 20_000 + 20_000;
            let penalised = naive::penalised(&logits[at.clone()], history, &batch, &filters);
            let want = naive::filtered(&penalised, &filters, filters.xtc_probability > 0.0, &[]);
            assert!(close(&got[at], &want), "row {row} differs with {filters:?}");
            assert_eq!(tokens[row] as usize, naive::draw(&want, uniforms[row]));
        }
    }
}

/// The same tokens and log-probs on x86-64 and under NEON, natively or emulated: the digest below was printed by the
/// scalar variant on x86-64, and says nothing about whether they are right (the tests above do).
#[test]
fn every_machine_gives_the_same_bits() {
    let (logits, uniforms, history) = large();
    let coins = [0.0; 3];
    let batch = Batch {
        history: Some(&history),
        xtc_coins: Some(&coins),
        ..batch(&logits, 20_000)
    };
    let mut digest = Digest::default();
    for filters in settings() {
        let (tokens, behaviour) = samples(&batch, &filters, &uniforms);
        let tokens: Vec<f64> = tokens.iter().map(|&token| token as f64).collect();
        digest.add_f64(&tokens);
        digest.add_f64(&behaviour);
        digest.add_f64(&logprobs(&batch, &filters));
    }
    assert_eq!(digest.value(), SAMPLING_DIGEST, "{:#x}", digest.value());
}

const SAMPLING_DIGEST: u64 = 0xbfed_7250_f301_f11b;
