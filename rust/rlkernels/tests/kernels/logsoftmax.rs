//! Log-probabilities, entropies and gradients against their definitions, special rows, and the same bits everywhere.

use proptest::prelude::*;
use rlkernels::logsoftmax::{
    Bf16, F16, Format, Ids, selective_log_softmax, selective_log_softmax_backward,
};

use crate::formats::Tested;
use crate::naive;
use crate::variants::{Digest, Numbers, Process, on_every_isa};

type Forward<F> = (Vec<<F as Format>::Result>, Vec<<F as Format>::Result>);

fn forward<F: Tested>(
    words: &[F::Word],
    ids: &[i64],
    vocabulary: usize,
    temperature: f64,
) -> Forward<F> {
    let mut alone = vec![F::Result::default(); ids.len()];
    let (mut logprobs, mut entropy) = (alone.clone(), alone.clone());
    let (result, both) = (&mut logprobs, Some(&mut entropy[..]));
    selective_log_softmax::<F>(words, ids, vocabulary, temperature, result, both).unwrap();
    selective_log_softmax::<F>(words, ids, vocabulary, temperature, &mut alone, None).unwrap();
    assert_eq!(
        format!("{logprobs:?}"),
        format!("{alone:?}"),
        "with and without entropy"
    );
    (logprobs, entropy)
}

fn backward<F: Tested>(
    words: &[F::Word],
    ids: &[i64],
    grads: (&[F::Result], Option<&[F::Result]>),
    vocabulary: usize,
    temperature: f64,
) -> Vec<F::Word> {
    let mut out = vec![F::Word::default(); words.len()];
    selective_log_softmax_backward::<F>(
        words,
        ids,
        grads.0,
        grads.1,
        vocabulary,
        temperature,
        &mut out,
    )
    .unwrap();
    out
}

/// Both directions of one row against the definition.
fn check_row<F: Tested>(logits: &[f64], id: usize, temperature: f64, grads: (f64, f64)) {
    let temperature = F::wide(F::result(temperature));
    let words: Vec<F::Word> = logits.iter().map(|&x| F::word(x)).collect();
    let real: Vec<f64> = words.iter().map(|&word| F::real(word)).collect();
    let (want, want_entropy) = naive::log_softmax(&real, temperature);
    let (logprobs, entropy) = forward::<F>(&words, &[id as i64], real.len(), temperature);
    let (got, entropy) = (F::wide(logprobs[0]), F::wide(entropy[0]));
    let hopeless = real.iter().all(|&x| x == f64::NEG_INFINITY) || real.contains(&f64::INFINITY);
    if hopeless {
        assert!(got.is_nan() && entropy.is_nan()); // float16 ends at 65504: what lies beyond it became infinite
        return;
    }
    let max = real.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let distance = (max - real[id]) / temperature;
    let log_sum = -want.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if distance.is_infinite() {
        assert_eq!(got, f64::NEG_INFINITY);
    } else if distance > 1e38 {
        assert!(got < -1e38); // or -inf: at the end of float32
    } else {
        let limit = F::LIMIT * (distance + log_sum.max(1.0));
        assert!(
            (got - want[id]).abs() <= limit,
            "log p {got}, want {}, limit {limit}",
            want[id]
        );
    }
    let limit = F::LIMIT * want_entropy.max(1.0);
    assert!(
        (entropy - want_entropy).abs() <= limit,
        "H {entropy}, want {want_entropy}, limit {limit}"
    );
    assert!(got <= 0.0 && entropy >= 0.0);

    let (g, h) = (F::wide(F::result(grads.0)), F::wide(F::result(grads.1)));
    let upstream = ([F::result(g)], [F::result(h)]);
    for h in [0.0, h] {
        let entropies = Some(&upstream.1[..]).filter(|_| h != 0.0);
        let got = backward::<F>(
            &words,
            &[id as i64],
            (&upstream.0, entropies),
            real.len(),
            temperature,
        );
        for (v, &word) in got.iter().enumerate() {
            let p = want[v].exp();
            let one = if v == id { 1.0 } else { 0.0 };
            let (inner, size) = if p == 0.0 {
                (0.0, 0.0)
            } else {
                (
                    p * (want[v] + want_entropy),
                    p * (want[v].abs() + want_entropy),
                )
            };
            let want = (g * (one - p) - h * inner) / temperature;
            let scale = (g.abs() * (one + p) + h.abs() * size) / temperature;
            let (rounding, tiny) = F::ROUNDING;
            let limit = F::LIMIT * scale + rounding * want.abs() + rounding * tiny + 1e-44;
            let got = F::real(word);
            assert!(
                (got - want).abs() <= limit,
                "gradient[{v}] {got}, want {want}, limit {limit}"
            );
        }
    }
}

fn any_logits() -> impl Strategy<Value = Vec<f64>> {
    let spread = prop_oneof![
        Just(1.0),
        Just(8.0),
        Just(40.0),
        Just(3e3),
        Just(3e6),
        Just(1e30)
    ];
    let offset = prop_oneof![Just(0.0), Just(-50.0), Just(900.0)];
    let row = prop::collection::vec((-1f64..1.0, 0u8..40), 1..700);
    (spread, offset, row).prop_map(|(spread, offset, row)| {
        let mut logits: Vec<f64> = row
            .iter()
            .map(|&(x, kind)| match kind {
                0 => f64::NEG_INFINITY,
                1 => -1e9,
                2 => f64::from(f32::MIN),
                _ => x * spread + offset,
            })
            .collect();
        logits[0] = row[0].0 * spread + offset; // at least one is finite
        logits
    })
}

proptest! {
    #[test]
    fn rows_are_their_definition(
        logits in any_logits(), pick in 0usize..1000, g in -2f64..2.0, h in -2f64..2.0,
        temperature in prop_oneof![Just(1.0), Just(0.7), Just(1e-3), Just(1e4), 0.05f64..5.0],
    ) {
        let id = pick % logits.len();
        check_row::<f32>(&logits, id, temperature, (g, h));
        check_row::<Bf16>(&logits, id, temperature, (g, h));
        check_row::<F16>(&logits, id, temperature, (g, h));
        if logits.iter().all(|x| x.abs() < 1e4 || x.is_infinite()) && temperature > 0.01 {
            check_row::<f64>(&logits, id, temperature, (g, h)); // beyond, the naive quotients are too coarse
        }
    }
}

/// Rows in which every error has the same sign: a maximum, and a tail of equal logits that weighs as much.
#[test]
fn rows_of_two_values_are_within_the_limit() {
    for (count, temperature) in [(1 << 18, 1.0), (1 << 18, 0.6), (100_000, 0.9), (4097, 1.3)] {
        for (step, offset) in (0..8).zip([0.0, 17.3, -403.7].into_iter().cycle()) {
            let tail = -(f64::from(count)).ln() * temperature + 0.137 * f64::from(step);
            let mut logits = vec![offset + tail; count as usize];
            logits[77] = offset;
            check_row::<f32>(&logits, 77, temperature, (1.0, 0.5));
        }
    }
}

#[test]
fn odd_temperatures_and_logits_take_the_slow_way_and_are_right() {
    let logits = [3.0, 1.0, -2.0, f64::NEG_INFINITY, 2.5];
    for power in [-60, -30, 30, 60] {
        let scale = 2f64.powi(power);
        let scaled: Vec<f64> = logits.iter().map(|x| x * scale).collect();
        check_row::<f32>(&scaled, 1, scale, (1.0, 1.0)); // the same distribution, in another unit
        check_row::<f64>(&scaled, 1, scale, (1.0, 1.0));
    }
    let far: Vec<f64> = logits.iter().map(|x| x + 2f64.powi(23)).collect();
    check_row::<f32>(&far, 4, 1.0, (1.0, -1.0));
    let far: Vec<f64> = logits.iter().map(|x| x * 1e300).collect();
    check_row::<f64>(&far, 0, 1.0, (1.0, -1.0));
}

#[test]
fn a_maximum_that_comes_late_changes_nothing_but_the_reference() {
    for late in [3.0, 90.0, 700.0, 1e5] {
        let mut logits: Vec<f64> = (0..70_000).map(|i| f64::from(i % 100) * 0.01).collect();
        logits[69_999] = late;
        logits[40_000] = late - 0.5;
        check_row::<f32>(&logits, 40_000, 1.0, (1.0, 1.0));
        logits[..50_000].fill(f64::NEG_INFINITY);
        check_row::<f32>(&logits, 69_998, 1.0, (1.0, 1.0));
        logits[..50_000].fill(-1e30);
        check_row::<f32>(&logits, 69_998, 1.0, (1.0, 1.0));
    }
}

#[test]
fn rows_without_a_distribution_are_nan() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let mut long = vec![-inf; 40_000];
    long[35_000] = nan; // in a segment that is not summed
    long[3] = 1.0;
    for row in [
        vec![nan, 1.0],
        vec![inf, 1.0],
        vec![-inf, -inf],
        vec![inf, nan],
        long,
    ] {
        let (logprobs, entropy) = forward::<f32>(&row, &[1], row.len(), 1.0);
        let bits = (logprobs[0].to_bits(), entropy[0].to_bits());
        assert_eq!(bits, (0x7fc0_0000, 0x7fc0_0000), "the positive quiet NaN");
        let gradient = backward::<f32>(&row, &[1], (&[1.0], None), row.len(), 1.0);
        assert!(gradient.iter().all(|x| x.to_bits() == 0x7fc0_0000));
        let gradient = backward::<f32>(&row, &[1], (&[0.0], Some(&[0.0])), row.len(), 1.0);
        assert!(gradient.iter().all(|&x| x == 0.0), "masked");
    }
    let gradient = backward::<f32>(&[1.0, 2.0], &[0], (&[inf], None), 2, 1.0);
    assert!(gradient.iter().all(|x| x.is_nan()));
}

#[test]
fn what_is_certain_or_impossible_is_exact() {
    let inf = f32::INFINITY;
    assert_eq!(
        forward::<f32>(&[-7.3], &[0], 1, 0.3),
        (vec![0.0], vec![0.0])
    );
    assert_eq!(
        forward::<f32>(&[1.0, -inf], &[1], 2, 1.0),
        (vec![-inf], vec![0.0])
    );
    let gradient = backward::<f32>(&[1.0, 2.0, -inf], &[0], (&[3.0], Some(&[2.0])), 3, 1.0);
    assert_eq!(gradient[2].to_bits(), 0);
    let gradient = backward::<f32>(&[5.0, -inf], &[0], (&[3.0], None), 2, 1.0);
    assert_eq!(gradient, [0.0, 0.0]);
}

/// Several tokens of a row, some of them equal or ignored, are the sum of calls with one token each.
#[test]
fn several_tokens_of_a_row_are_the_sum_of_single_ones() {
    const VOCABULARY: usize = 40_000; // two segments
    let ids = [
        3, 39_999, 3, -100, 0, -100, -100, -100, -100, 7, 8, 9, 7, 7, 39_998,
    ];
    let (rows, per_row) = (3, 5);
    let mut numbers = Numbers::new(5);
    let mut logits: Vec<f64> = (0..rows * VOCABULARY)
        .map(|_| numbers.unit() * 8.0)
        .collect();
    logits[VOCABULARY] = f64::NAN; // of the row that is ignored but for one token, which makes it count
    logits[2 * VOCABULARY..][..10].fill(f64::NEG_INFINITY);
    logits[2 * VOCABULARY + 7] = 1.0;
    let grads: Vec<f64> = (0..rows * per_row).map(|i| i as f64 - 6.3).collect();
    let (mut logprobs, mut entropy) = ([9.0; 15], [9.0; 3]);
    let asked = Ids {
        tokens: &ids,
        per_row,
        ignore_index: Some(-100),
    };
    let both = Some(&mut entropy[..]);
    selective_log_softmax::<f64>(&logits, asked, VOCABULARY, 2.0, &mut logprobs, both).unwrap();
    let mut gradient = vec![9.0; logits.len()];
    let out = &mut gradient;
    selective_log_softmax_backward::<f64>(&logits, asked, &grads, None, VOCABULARY, 2.0, out)
        .unwrap();
    for row in 0..rows {
        let words = &logits[row * VOCABULARY..(row + 1) * VOCABULARY];
        let mut sum = vec![0.0; VOCABULARY];
        for slot in row * per_row..(row + 1) * per_row {
            if ids[slot] == -100 {
                assert_eq!(logprobs[slot].to_bits(), 0);
                continue;
            }
            let (alone, h) = forward::<f64>(words, &ids[slot..=slot], VOCABULARY, 2.0);
            assert_eq!(logprobs[slot].to_bits(), alone[0].to_bits());
            assert_eq!(entropy[row].to_bits(), h[0].to_bits());
            let grads = (&grads[slot..=slot], None);
            let part = backward::<f64>(words, &ids[slot..=slot], grads, VOCABULARY, 2.0);
            sum.iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part);
        }
        for (got, want) in gradient[row * VOCABULARY..].iter().zip(sum) {
            assert!(
                (got - want).abs() <= 1e-14 || got.is_nan() && want.is_nan(),
                "{got} {want}"
            );
        }
    }
}

#[test]
fn a_row_of_ignored_tokens_is_not_read() {
    let logits = [f64::NAN; 6];
    let ids = Ids {
        tokens: &[-1, -1],
        per_row: 1,
        ignore_index: Some(-1),
    };
    let (mut logprobs, mut entropy, mut gradient) = ([9.0; 2], [9.0; 2], [9.0; 6]);
    selective_log_softmax::<f64>(&logits, ids, 3, 1.0, &mut logprobs, Some(&mut entropy)).unwrap();
    let grads = [1.0; 2];
    let (entropies, out) = (Some(&grads[..]), &mut gradient);
    selective_log_softmax_backward::<f64>(&logits, ids, &grads, entropies, 3, 1.0, out).unwrap();
    assert_eq!(
        (logprobs, entropy, gradient),
        ([0.0; 2], [0.0; 2], [0.0; 6])
    );
    let rows_of_two = Ids { per_row: 2, ..ids };
    let error = selective_log_softmax::<f64>(&logits, rows_of_two, 3, 1.0, &mut logprobs, None);
    let message =
        "`logits` has 6 elements, must have 3 like the rows of `ids` times the vocabulary";
    assert_eq!(error.unwrap_err().to_string(), message);
}

#[test]
fn wrong_inputs_are_named_with_their_values() {
    let call = |logits: usize, ids: &[i64], vocabulary, temperature| {
        let mut out = vec![0.0; ids.len()];
        let logits = vec![0f32; logits];
        selective_log_softmax::<f32>(&logits, ids, vocabulary, temperature, &mut out, None)
            .map_err(|error| error.to_string())
    };
    let id =
        "must be between 0 and 2 (the vocabulary; rows are counted in C order) or `ignore_index`";
    let tau = "in float32, must be finite and above 0";
    for (got, want) in [
        (call(6, &[0, 3], 3, 1.0), format!("`ids[1]` is 3, {id}")),
        (call(6, &[-1, 2], 3, 1.0), format!("`ids[0]` is -1, {id}")),
        (call(3, &[0], 3, 0.0), format!("`temperature` is 0 {tau}")),
        (call(3, &[0], 3, -1.0), format!("`temperature` is -1 {tau}")),
        (
            call(3, &[0], 3, f64::NAN),
            format!("`temperature` is NaN {tau}"),
        ),
        (
            call(3, &[0], 3, 1e39),
            format!("`temperature` is inf {tau}"),
        ),
        (call(3, &[0], 3, 1e-60), format!("`temperature` is 0 {tau}")),
        (
            call(0, &[0], 0, 1.0),
            "`logits` has rows of 0 tokens, must have a vocabulary of at least 1".into(),
        ),
        (
            call(5, &[0, 0], 3, 1.0),
            "`logits` has 5 elements, must have 6 like the rows of `ids` times the vocabulary"
                .into(),
        ),
    ] {
        assert_eq!(got, Err(want));
    }
    assert_eq!(call(0, &[], 3, 1.0), Ok(()));
    assert_eq!(call(0, &[], 0, 1.0), Ok(()));
}

fn digest_of<F: Tested>(digest: &mut Digest, rows: usize, vocabulary: usize, temperature: f64) {
    let mut numbers = Numbers::new(vocabulary as u64);
    let words: Vec<F::Word> = (0..rows * vocabulary)
        .map(|i| {
            let x = (numbers.unit() + numbers.unit() + numbers.unit() - 1.5) * 16.0;
            F::word(if i % 1013 == 7 { f64::NEG_INFINITY } else { x })
        })
        .collect();
    let ids: Vec<i64> = (0..rows).map(|i| (i * 31 % vocabulary) as i64).collect();
    let grads: Vec<F::Result> = (0..rows).map(|i| F::result(i as f64 - 0.7)).collect();
    let (logprobs, entropy) = forward::<F>(&words, &ids, vocabulary, temperature);
    let both = backward::<F>(
        &words,
        &ids,
        (&grads, Some(&grads)),
        vocabulary,
        temperature,
    );
    let one = backward::<F>(&words, &ids, (&grads, None), vocabulary, temperature);
    for results in [logprobs, entropy] {
        digest.add_f64(&results.into_iter().map(F::wide).collect::<Vec<_>>());
    }
    for words in [both, one] {
        digest.add_f64(&words.into_iter().map(F::real).collect::<Vec<_>>());
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let digests = on_every_isa(|| {
        let mut digest = Digest::default();
        for (rows, vocabulary) in [(2, 40_003), (9, 1501), (40, 331), (5, 1)] {
            for temperature in [1.0, 0.7] {
                digest_of::<f32>(&mut digest, rows, vocabulary, temperature);
                digest_of::<f64>(&mut digest, rows, vocabulary, temperature);
                digest_of::<Bf16>(&mut digest, rows, vocabulary, temperature);
                digest_of::<F16>(&mut digest, rows, vocabulary, temperature);
            }
        }
        digest_of::<f32>(&mut digest, 3, 1000, 1e-30); // the slow way
        digest_of::<f64>(&mut digest, 3, 1000, 1e-200);
        digest.value()
    });
    for (isa, digest) in digests {
        assert_eq!(digest, DIGEST, "{isa}: {digest:#x}");
    }
}

/// Printed by the scalar variant; NEON, natively or emulated, must give it too.
const DIGEST: u64 = 0x1924_afeb_6461_113c;

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    let process = Process::mine();
    let [one, two, three] = [1, 2, 3].map(|threads| {
        process.set_threads(threads);
        let mut digest = Digest::default();
        digest_of::<f32>(&mut digest, 2, 110_003, 0.7); // segments shared
        digest_of::<Bf16>(&mut digest, 9, 23_000, 1.0); // rows shared
        digest_of::<f64>(&mut digest, 700, 331, 1.0); // several rows in a part
        digest.value()
    });
    assert_eq!((two, three), (one, one));
}
