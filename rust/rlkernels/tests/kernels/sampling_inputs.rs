//! Samplers on every element type, at the ends of every range, and what they refuse.

use rlkernels::sampling::{Batch, Filters, Logits, Order, Ties, filtered_logprobs, sample_tokens};

use crate::naive::sampling::{batch, logprobs, samples, settings};
use crate::variants::Numbers;

const INF: f64 = f64::INFINITY;

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
fn single_precision_holds_the_nearest_of_what_double_precision_holds() {
    let mut numbers = Numbers::new(7);
    // the last vocabulary is written past the caches, in both types
    for vocabulary in [1, 6, 300, 140_001] {
        let logits: Vec<f64> = (0..2 * vocabulary)
            .map(|_| (numbers.word() % 4096) as f64 / 256.0)
            .collect();
        for filters in [
            Filters::off(Order::Hf),
            Filters {
                top_k: 5,
                ..Filters::off(Order::Hf)
            },
            Filters {
                top_p: 0.7,
                ..Filters::off(Order::MlxLm)
            },
            Filters {
                temperature: 0.0,
                ..Filters::off(Order::Hf)
            },
        ] {
            let batch = batch(&logits, vocabulary);
            let want: Vec<f32> = logprobs(&batch, &filters)
                .iter()
                .map(|&x| x as f32)
                .collect();
            let mut got = vec![f32::NAN; logits.len()];
            filtered_logprobs(&batch, &filters, &mut got).unwrap();
            assert_eq!(got, want, "{vocabulary} {filters:?}");
        }
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

/// The blocks' sums, one after the other, may stay below a total that was summed in another order.
#[test]
fn nothing_but_rounding_stands_behind_the_last_token_that_is_drawn() {
    let below_one = 1.0 - f64::EPSILON / 2.0;
    let off = Filters::off(Order::Hf);
    let mut state = 1_u64;
    for row in 0..60 {
        let logits: Vec<f64> = (0..1_000 + 257 * row)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 40) as f64 * 1e-6 - 8.0
            })
            .collect();
        let drawn = samples(&batch(&logits, logits.len()), &off, &[below_one]).0[0] as usize;
        let weights: Vec<f64> = logits.iter().map(|logit| logit.exp()).collect();
        let behind: f64 = weights[drawn + 1..].iter().sum();
        let total: f64 = weights.iter().sum();
        assert!(
            behind <= total * 2.0_f64.powi(-40),
            "row {row}: {drawn} of {} with {behind} of {total} behind it",
            logits.len()
        );
    }
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
#[allow(clippy::too_many_lines)] // a table
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
    let error = filtered_logprobs::<f64>(&empty, &Filters::off(Order::Hf), &mut []).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`logits` is empty, must hold at least one element"
    );
}

/// Sets that a hand can find: of probabilities 1/8, 1/4, 1/4, 1/4, 1/8 the second of the likeliest reaches 0.45, one of three equal ones.
#[test]
fn equally_likely_tokens_stay_as_the_ties_say() {
    let row: Vec<f64> = [0.125f64, 0.25, 0.25, 0.25, 0.125].map(f64::ln).to_vec();
    let kept = |filters: Filters| -> Vec<usize> {
        let got = logprobs(&batch(&row, 5), &filters);
        (0..5).filter(|&id| got[id] > -INF).collect()
    };
    let table = [
        (Order::Hf, Ties::Library, vec![1, 2, 3], vec![2, 3]),
        (Order::MlxLm, Ties::Library, vec![1, 2], vec![1, 2, 3]),
        (Order::Hf, Ties::All, vec![1, 2, 3], vec![1, 2, 3]),
        (Order::MlxLm, Ties::LowerId, vec![1, 2], vec![1, 2]),
    ];
    for (order, ties, of_top_k, of_top_p) in table {
        let off = Filters {
            ties,
            ..Filters::off(order)
        };
        assert_eq!(kept(Filters { top_k: 2, ..off }), of_top_k, "{off:?}");
        assert_eq!(kept(Filters { top_p: 0.45, ..off }), of_top_p, "{off:?}");
    }
    let long = vec![0.0; 1000]; // one pass for the second token, and another for those tied with it
    let got = logprobs(
        &batch(&long, 1000),
        &Filters {
            top_k: 2,
            ..Filters::off(Order::Hf)
        },
    );
    assert!(got.iter().all(|&x| x > -INF));
}
