//! Filters and draws against a sampler that sorts everything, on every instruction set, and their errors.

mod variants;

use proptest::prelude::*;
use rlkernels::parallel;
use rlkernels::sampling::{Batch, Filters, Logits, Order, filtered_logprobs, sample_tokens};
use variants::{Numbers, on_every_isa};

const INF: f64 = f64::INFINITY;
/// What a float64 sampler may move a threshold or a uniform by.
const ETA: f64 = 1.0 / (1u64 << 40) as f64;

/// The definitions, by sorting and summing everything at every step.
mod naive {
    use super::{Filters, INF, Order};

    pub(crate) fn log_softmax(x: &[f64], temperature: f64) -> Vec<f64> {
        let most = x.iter().copied().fold(-INF, f64::max);
        let shifted: Vec<f64> = x.iter().map(|x| (x - most) / temperature).collect();
        let log_sum = shifted.iter().map(|z| z.exp()).sum::<f64>().ln();
        shifted.iter().map(|z| z - log_sum).collect()
    }

    pub(crate) fn penalised(x: &[f64], history: &[i64], penalty: f64) -> Vec<f64> {
        let penalise = |(id, &x): (usize, &f64)| match history.contains(&(id as i64)) {
            true if x > 0.0 => x / penalty,
            true => x * penalty,
            false => x,
        };
        x.iter().enumerate().map(penalise).collect()
    }

    /// `logits` with their penalty; `xtc` says whether the coin lets it act.
    pub(crate) fn filtered(logits: &[f64], f: &Filters, xtc: bool) -> Vec<f64> {
        if f.temperature == 0.0 {
            let most = logits.iter().copied().fold(-INF, f64::max);
            let first = logits.iter().position(|&x| x == most).unwrap();
            return (0..logits.len())
                .map(|id| if id == first { 0.0 } else { -INF })
                .collect();
        }
        let top_k = |x: &[f64]| keep_ranked(x, |rank, _| f.top_k == 0 || rank < f.top_k);
        let top_p = |x: &[f64]| {
            keep_ranked(x, |rank, before| {
                rank == 0 || f.top_p == 1.0 || before < f.top_p
            })
        };
        let min_p = |x: &[f64]| {
            let most = x.iter().copied().fold(-INF, f64::max);
            renormalised(x, |x| x.exp() >= f.min_p * most.exp())
        };
        let xtc = |x: &[f64]| {
            let above = x.iter().copied().filter(|x| x.exp() > f.xtc_threshold);
            let least = above.fold(INF, f64::min);
            renormalised(x, |x| !xtc || x <= least)
        };
        match f.order {
            Order::Hf => xtc(&min_p(&top_p(&top_k(&log_softmax(logits, f.temperature))))),
            Order::MlxLm => log_softmax(
                &top_k(&xtc(&min_p(&top_p(&log_softmax(logits, 1.0))))),
                f.temperature,
            ),
        }
    }

    fn renormalised(x: &[f64], stays: impl Fn(f64) -> bool) -> Vec<f64> {
        let kept: Vec<f64> = x.iter().map(|&x| if stays(x) { x } else { -INF }).collect();
        log_softmax(&kept, 1.0)
    }

    fn keep_ranked(x: &[f64], stays: impl Fn(usize, f64) -> bool) -> Vec<f64> {
        let mut ids: Vec<usize> = (0..x.len()).collect();
        ids.sort_by(|&a, &b| x[b].total_cmp(&x[a]).then(a.cmp(&b)));
        let (mut kept, mut before) = (vec![-INF; x.len()], 0.0);
        for (rank, id) in ids.into_iter().enumerate() {
            if stays(rank, before) {
                kept[id] = x[id];
            }
            before += x[id].exp();
        }
        log_softmax(&kept, 1.0)
    }

    pub(crate) fn draw(logprobs: &[f64], u: f64) -> usize {
        let total: f64 = logprobs.iter().map(|x| x.exp()).sum();
        let mut sum = 0.0;
        logprobs
            .iter()
            .position(|x| {
                sum += x.exp();
                sum > u * total
            })
            .unwrap()
    }
}

fn batch<'a>(logits: &'a [f64], vocabulary: usize) -> Batch<'a> {
    Batch {
        logits: Logits::F64(logits),
        rows: logits.len() / vocabulary,
        vocabulary,
        history: None,
        xtc_coins: None,
    }
}

fn logprobs(batch: &Batch<'_>, filters: &Filters) -> Vec<f64> {
    let mut out = vec![f64::NAN; batch.rows * batch.vocabulary];
    filtered_logprobs(batch, filters, &mut out).unwrap();
    out
}

fn samples(batch: &Batch<'_>, filters: &Filters, uniforms: &[f64]) -> (Vec<i64>, Vec<f64>) {
    let (mut tokens, mut logprobs) = (vec![-1; batch.rows], vec![f64::NAN; batch.rows]);
    sample_tokens(batch, filters, uniforms, &mut tokens, &mut logprobs).unwrap();
    (tokens, logprobs)
}

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
    let temperature = prop_oneof![Just(1.0), Just(0.0), 0.05..3.0];
    let top_k = prop_oneof![Just(0usize), Just(1), 0usize..60, 0usize..2000];
    let share =
        |off: f64| prop_oneof![2 => Just(off), 1 => 0.0..=1.0, 1 => Just(0.95), 1 => Just(0.0)];
    let xtc = (
        prop_oneof![Just(0.0), Just(0.5)],
        prop_oneof![0.0..0.5, Just(0.01), Just(0.0)],
    );
    (
        order,
        temperature,
        top_k,
        share(1.0),
        share(0.0),
        xtc,
        prop_oneof![Just(1.0), 0.5..2.0],
    )
        .prop_map(
            |(
                order,
                temperature,
                top_k,
                top_p,
                min_p,
                (xtc_probability, xtc_threshold),
                repetition_penalty,
            )| Filters {
                order,
                temperature,
                top_k,
                top_p,
                min_p,
                xtc_probability,
                xtc_threshold,
                repetition_penalty,
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
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn what_is_kept_and_drawn_is_what_sorting_everything_gives(
        row in row(), filters in filters(), coin in 0.0..1.0, u in prop_oneof![Just(0.0), 0.0..1.0],
        ids in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let history: Vec<i64> = ids.iter().map(|id| id.index(row.len() + 1) as i64 - 1).collect();
        let (coins, xtc) = ([coin], coin < filters.xtc_probability);
        let batch = Batch { history: Some(&history), xtc_coins: Some(&coins), ..batch(&row, row.len()) };
        let penalised = naive::penalised(&row, &history, filters.repetition_penalty);
        let want: Vec<_> = neighbours(&filters).iter().map(|f| naive::filtered(&penalised, f, xtc)).collect();

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

fn settings() -> Vec<Filters> {
    let mut result = Vec::new();
    for order in [Order::Hf, Order::MlxLm] {
        let off = Filters::off(order);
        let some = [
            off,
            Filters { top_p: 0.95, ..off },
            Filters { top_k: 50, ..off },
            Filters {
                top_k: 9000,
                top_p: 0.5,
                temperature: 0.7,
                ..off
            },
            Filters {
                min_p: 0.3,
                temperature: 1.7,
                ..off
            },
            Filters {
                xtc_probability: 1.0,
                xtc_threshold: 1e-5,
                ..off
            },
            Filters {
                top_p: 0.9,
                min_p: 0.01,
                top_k: 700,
                xtc_probability: 1.0,
                xtc_threshold: 1e-4,
                repetition_penalty: 1.2,
                ..off
            },
        ];
        result.extend(some);
    }
    result
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
        let mut results = on_every_isa(all);
        let (_, first) = results.remove(0);
        let before = parallel::set_threads(3).unwrap();
        results.extend(on_every_isa(all));
        parallel::set_threads(before).unwrap();
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
            let penalised =
                naive::penalised(&logits[at.clone()], history, filters.repetition_penalty);
            let want = naive::filtered(&penalised, &filters, filters.xtc_probability > 0.0);
            assert!(close(&got[at], &want), "row {row} differs with {filters:?}");
            assert_eq!(tokens[row] as usize, naive::draw(&want, uniforms[row]));
        }
    }
}

#[test]
fn every_element_type_gives_what_its_numbers_give() {
    // numbers of 8 bits of mantissa and exponents within ±8: exact in all four types
    let mut numbers = Numbers::new(3);
    let wide: Vec<f64> = (0..3000)
        .map(|_| (numbers.word() % 255) as f64 / 16.0 - 8.0)
        .collect();
    let single: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
    let brain: Vec<u16> = single.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let half: Vec<u16> = single
        .iter()
        .map(|x| {
            let bits = x.to_bits();
            let exponent = (bits >> 23 & 255).wrapping_sub(112);
            let magnitude = if *x == 0.0 {
                0
            } else {
                exponent << 10 | bits >> 13 & 1023
            };
            (bits >> 31 << 15 | magnitude) as u16
        })
        .collect();
    let history = [5, -1, 7, 8, 9, 9];
    for filters in settings() {
        let with = |logits| {
            let batch = Batch {
                logits,
                history: Some(&history),
                xtc_coins: Some(&[0.0; 3]),
                ..batch(&wide, 1000)
            };
            (
                logprobs(&batch, &filters),
                samples(&batch, &filters, &[0.1, 0.5, 0.9]),
            )
        };
        let want = with(Logits::F64(&wide));
        assert_eq!(with(Logits::F32(&single)), want);
        assert_eq!(with(Logits::Bf16(&brain)), want);
        assert_eq!(with(Logits::F16(&half)), want);
    }
}

#[test]
fn the_ends_of_the_unit_interval_draw_possible_tokens() {
    let row = [-INF, 0.0, 1.0, -INF, 0.0, -INF];
    let below_one = 1.0 - f64::EPSILON / 2.0;
    let off = Filters::off(Order::Hf);
    assert_eq!(samples(&batch(&row, 6), &off, &[0.0]).0, [1]);
    assert_eq!(samples(&batch(&row, 6), &off, &[below_one]).0, [4]);
    let long = vec![0.25; 10_000]; // a plain running sum of so many may end below its total
    assert_eq!(
        samples(&batch(&long, 10_000), &off, &[below_one]).0,
        [9_999]
    );
}

#[test]
fn temperatures_of_every_size() {
    let row = [1.0, 3.0, 3.0, -INF, 2.0];
    for order in [Order::Hf, Order::MlxLm] {
        let at = |temperature, top_p| {
            logprobs(
                &batch(&row, 5),
                &Filters {
                    temperature,
                    top_p,
                    ..Filters::off(order)
                },
            )
        };
        assert_eq!(
            at(0.0, 0.5),
            [-INF, 0.0, -INF, -INF, -INF],
            "greedy takes the lower id"
        );
        for tiny in [f64::from_bits(1), f64::MIN_POSITIVE, 1e-300, 1e-5] {
            let got = at(tiny, 0.99);
            let half = (0.5f64).ln();
            assert!(
                (got[1] - half).abs() < 1e-15 && got[1] == got[2],
                "{tiny}: {got:?}"
            );
            assert!(got[0] < -1e5 && got[4] < -9e4, "{tiny}: {got:?}");
        }
        for huge in [1e10, 1e300, f64::MAX] {
            let got = at(huge, 1.0);
            assert!(
                got.iter()
                    .all(|x| *x == -INF || (x - 0.25f64.ln()).abs() < 1e-9),
                "{huge}: {got:?}"
            );
        }
    }
    let wide = [f64::MAX, -f64::MAX, f64::MAX];
    let got = logprobs(
        &batch(&wide, 3),
        &Filters {
            top_p: 0.9,
            ..Filters::off(Order::Hf)
        },
    );
    assert_eq!(got[1], -INF);
    assert!((got[0] - 0.5f64.ln()).abs() < 1e-15);
}

#[test]
fn wrong_inputs_are_named() {
    let row = [0.0, 1.0, 2.0, 0.5, f64::NAN, 1.0];
    let off = Filters::off(Order::Hf);
    let failed = |batch: &Batch<'_>, filters: &Filters| {
        filtered_logprobs(batch, filters, &mut [0.0; 6])
            .unwrap_err()
            .to_string()
    };
    let both = batch(&row, 3);
    let fine = batch(&row[..3], 3);
    let penalty = Filters {
        repetition_penalty: 1.5,
        ..off
    };
    let xtc = Filters {
        xtc_probability: 0.5,
        ..off
    };
    let cases: [(Batch<'_>, Filters, &str); 14] = [
        (both, off, "`logits[1, 1]` is NaN, must be finite or -inf"),
        (
            both,
            Filters {
                temperature: 0.0,
                ..off
            },
            "`logits[1, 1]` is NaN, must be finite or -inf",
        ),
        (
            batch(&[0.0, INF], 2),
            off,
            "`logits[0, 1]` is inf, must be finite or -inf",
        ),
        (
            batch(&[0.0, 0.0, -INF, -INF], 2),
            off,
            "`logits[1]` is -inf everywhere, must be finite somewhere: no token can be drawn",
        ),
        (
            fine,
            Filters {
                temperature: -1.0,
                ..off
            },
            "`temperature` is -1, must be finite and at least 0",
        ),
        (
            fine,
            Filters {
                temperature: INF,
                ..off
            },
            "`temperature` is inf, must be finite and at least 0",
        ),
        (
            fine,
            Filters { top_p: 1.5, ..off },
            "`top_p` is 1.5, must be within [0, 1]",
        ),
        (
            fine,
            Filters {
                min_p: f64::NAN,
                ..off
            },
            "`min_p` is NaN, must be within [0, 1]",
        ),
        (
            fine,
            Filters {
                repetition_penalty: 0.0,
                ..off
            },
            "`repetition_penalty` is 0, must be finite and above 0",
        ),
        (
            fine,
            penalty,
            "`history` is missing, must be given where `repetition_penalty` is not 1",
        ),
        (
            Batch {
                history: Some(&[0, -1, 3]),
                ..fine
            },
            penalty,
            "`history[0, 2]` is 3, must be -1 (no token) or an id of the vocabulary",
        ),
        (
            fine,
            xtc,
            "`xtc_coin` is missing, must be given where `xtc_probability` is above 0",
        ),
        (
            Batch {
                xtc_coins: Some(&[1.0]),
                ..fine
            },
            xtc,
            "`xtc_coin[0]` is 1, must be in [0, 1)",
        ),
        (
            Batch {
                xtc_coins: Some(&[]),
                ..fine
            },
            xtc,
            "`xtc_coin` has 0 elements, must have 1 like the rows of `logits`",
        ),
    ];
    for (batch, filters, message) in cases {
        let mut out = vec![0.0; batch.rows * batch.vocabulary];
        let error = filtered_logprobs(&batch, &filters, &mut out).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(
        failed(&fine, &off),
        "`out` has 6 elements, must have 3 like `logits`"
    );
    for u in [1.0, -0.1, f64::NAN] {
        let error = sample_tokens(&fine, &off, &[u], &mut [0], &mut [0.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`uniforms[0]` is {u}, must be in [0, 1)")
        );
    }
}

#[test]
fn no_rows_are_no_error() {
    let none = Batch {
        rows: 0,
        ..batch(&[], 1)
    };
    assert_eq!(logprobs(&none, &Filters::off(Order::Hf)), [0.0; 0]);
    let empty = Batch {
        rows: 2,
        vocabulary: 0,
        ..none
    };
    let error = filtered_logprobs(&empty, &Filters::off(Order::Hf), &mut []).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`logits` is empty, must hold at least one element"
    );
}
