//! Policy losses against their definitions, their layouts against each other, and the same bits everywhere.
#![allow(unreachable_pub)]

use proptest::prelude::*;
use rlkernels::Float;
use rlkernels::policy_loss::{Algorithm, Convention, Signal, Step, policy_loss};
use rlkernels::rows::{Rows, Valid};

use crate::naive;
use crate::naive::loss::convention;
use crate::steps::Data;
use crate::variants::{Digest, Process};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_loss_and_gradient_is_its_definition(
        which in 0..Algorithm::ALL.len(), choice in 0usize..36, seed: u64, width in 1usize..13, by_row: bool
    ) {
        let algorithm = Algorithm::ALL[which];
        let by_row = by_row || algorithm.is_by_row();
        let all = convention(algorithm, choice);
        let data = Data::new(seed, 6, width, 1.2);
        let (loss, gradient) = data.run(&all, by_row, Valid::Prefix(&data.lengths));
        let naive = data.naive(by_row);
        let want = naive.loss(&naive, &all);
        if want.is_nan() { // a block or a step without tokens: 0/0 in the naive sum
            prop_assert!(loss.value.is_finite());
            return Ok(());
        }
        prop_assert!((loss.value - want).abs() <= 1e-12 * (1.0 + want.abs()), "{all:?}: {} is not {want}", loss.value);
        for row in 0..6 {
            for slot in 0..width {
                let got = gradient[row * width + slot];
                if slot >= data.lengths[row] as usize {
                    prop_assert_eq!(got.to_bits(), 0);
                    continue;
                }
                let [left, right] = naive.slopes(row, slot, &all);
                let scale = 1.0 + left.abs() + right.abs();
                if (left - right).abs() < 1e-4 * scale { // no bound within the step
                    prop_assert!((got - left).abs() < 2e-4 * scale, "{all:?}: {got} is not {left}");
                }
            }
        }
    }

    #[test]
    fn mask_lengths_and_ragged_layouts_agree(which in 0..Algorithm::ALL.len(), choice in 0usize..36, seed: u64, width in 1usize..40) {
        let all = convention(Algorithm::ALL[which], choice);
        let data = Data::new(seed, 6, width, 1.0);
        let is_token = |slot: usize| ((slot % width) as i64) < data.lengths[slot / width];
        let mask: Vec<u8> = (0..6 * width).map(|slot| if is_token(slot) { 128 } else { 0 }).collect();
        let (a, by_mask) = data.run(&all, true, Valid::Mask(&mask));
        let (b, by_length) = data.run(&all, true, Valid::Prefix(&data.lengths));
        prop_assert_eq!(a.value.to_bits(), b.value.to_bits());
        prop_assert_eq!(&by_mask, &by_length);
        let flat = |values: &[f64]| -> Vec<f64> {
            (0..6 * width).filter(|&slot| is_token(slot)).map(|slot| values[slot]).collect()
        };
        let (policy, old, reference) = (flat(&data.policy), flat(&data.old), flat(&data.reference));
        let (advantages, weights) = (data.of_rows(&data.advantages), data.of_rows(&data.weights));
        let step = Step {
            policy: &policy,
            old: Some(&old),
            reference: Some(&reference),
            advantages: Signal::Rows(&advantages),
            weights: Some(Signal::Rows(&weights)),
            rows: Rows::Ragged(&data.lengths),
        };
        let mut gradient = vec![0.0; policy.len()];
        let c = policy_loss(&step, &all, &mut gradient).expect("a good step");
        prop_assert_eq!(a.value.to_bits(), c.value.to_bits());
        prop_assert_eq!(gradient, flat(&by_mask));
    }
}

fn tiny<T: Float>(
    policy: &[T],
    old: Option<&[T]>,
    advantages: &[T],
    all: &Convention<'_>,
) -> rlkernels::Result<(f64, Vec<T>)> {
    let step = Step {
        policy,
        old,
        reference: None,
        advantages: Signal::Rows(advantages),
        weights: None,
        rows: Rows::Padded {
            rows: advantages.len(),
            width: policy.len() / advantages.len().max(1),
            valid: Valid::All,
        },
    };
    let mut gradient = policy.to_vec();
    policy_loss(&step, all, &mut gradient).map(|loss| (loss.value, gradient))
}

fn grpo(low: f64, high: f64) -> Convention<'static> {
    let mut all = Convention::new(Algorithm::Grpo);
    (all.epsilon_low, all.epsilon_high) = (Some(low), Some(high));
    all
}

#[test]
fn on_policy_the_value_is_of_ratio_1_and_the_gradient_alive() {
    let (loss, gradient) = tiny(&[-1.0, -2.0], None, &[3.0, -1.0], &grpo(0.2, 0.2)).expect("good");
    assert_eq!(loss, -1.0); // −(3 − 1)/2
    assert_eq!(gradient, [-1.5, 0.5]);
}

#[test]
fn a_clip_acts_only_strictly_outside_its_bound() {
    let (_, at) = tiny(&[0.0], Some(&[0.0]), &[-1.0], &grpo(0.0, 0.0)).expect("good");
    let (_, outside) = tiny(&[-1e-12], Some(&[0.0]), &[-1.0], &grpo(0.0, 0.0)).expect("good");
    assert_eq!((at, outside), (vec![1.0], vec![0.0]));
}

#[test]
fn an_overflowing_ratio_is_harmless_where_nothing_depends_on_it() {
    let all = grpo(0.2, 0.2);
    let one = |advantage: f64| tiny(&[0.0], Some(&[-1e4]), &[advantage], &all).expect("good");
    assert_eq!(one(0.0), (0.0, vec![0.0]));
    assert_eq!(one(1.0), (-1.2, vec![0.0]));
    assert_eq!(one(-1.0), (f64::INFINITY, vec![f64::INFINITY]));
    let mut product = Convention::new(Algorithm::Rloo);
    product.beta = 0.0;
    let both = tiny(&[0.0, 0.0], Some(&[-1e4, -1e4]), &[1.0, 0.0], &product).expect("good");
    assert_eq!(both, (f64::NEG_INFINITY, vec![f64::NEG_INFINITY, 0.0]));
}

#[test]
fn values_that_are_not_finite_are_named_on_tokens_only() {
    let all = grpo(0.2, 0.2);
    let wrong = |policy: &[f32], old: &[f32], advantages: &[f32]| {
        let error = tiny(policy, Some(old), advantages, &all).expect_err("not finite");
        error.to_string()
    };
    assert_eq!(
        wrong(&[-1.0, f32::NAN, -1.0, -1.0], &[0.0; 4], &[1.0, 1.0]),
        "`policy` is NaN in row 0, slot 1, must be finite on tokens"
    );
    assert_eq!(
        wrong(&[-1.0; 4], &[0.0, 0.0, f32::NEG_INFINITY, 0.0], &[1.0, 1.0]),
        "`old` is -inf in row 1, slot 0, must be finite on tokens"
    );
    assert_eq!(
        wrong(&[-1.0; 4], &[0.0; 4], &[f32::INFINITY, 1.0]),
        "`advantages` is inf in row 0, slot 0, must be finite on tokens"
    );
    let step = Step {
        policy: &[-1.0, f64::NAN, f64::NAN, f64::NAN],
        old: Some(&[-1.0, 0.0, f64::INFINITY, 0.0]),
        reference: None,
        advantages: Signal::Rows(&[2.0, f64::NAN]),
        weights: None,
        rows: Rows::Padded {
            rows: 2,
            width: 2,
            valid: Valid::Prefix(&[1, 0]),
        },
    };
    let mut gradient = [9.0; 4];
    let loss = policy_loss(&step, &all, &mut gradient).expect("no token is wrong");
    assert_eq!((loss.value, gradient), (-1.0, [-1.0, 0.0, 0.0, 0.0]));
    assert_eq!((loss.metrics.tokens, loss.metrics.sequences), (1, 1));
}

#[test]
fn metrics_count_what_the_bounds_do() {
    let old = [0.0; 6];
    let policy = [-1.0, 1.0, 0.1, -1.0, 1.0, -0.1]; // ratios .37, 2.7, 1.1, .37, 2.7, .9
    let mut all = grpo(0.2, 0.2);
    all.delta = Some(2.0);
    let step = Step {
        policy: &policy,
        old: Some(&old),
        reference: None,
        advantages: Signal::Rows(&[1.0, -1.0]),
        weights: None,
        rows: Rows::Padded {
            rows: 2,
            width: 3,
            valid: Valid::All,
        },
    };
    let found = policy_loss(&step, &all, &mut [0.0; 6])
        .expect("good")
        .metrics;
    let share = |count: f64| Some(count / 6.0);
    assert_eq!(
        (found.outside_low, found.outside_high),
        (share(2.0), share(2.0))
    );
    assert_eq!(
        (found.clipped_low, found.clipped_high),
        (share(1.0), share(1.0))
    );
    assert_eq!((found.clipped_delta, found.kl), (share(1.0), None));
    assert_eq!((found.tokens, found.sequences), (6, 2));
    let ratios = policy.map(f64::exp);
    assert!((found.ratio_mean - naive::mean(&ratios)).abs() < 1e-15);
    assert!((found.ratio_min - ratios[0]).abs() < 1e-15);
    assert!((found.ratio_max - ratios[1]).abs() < 1e-15);
    let k3 = naive::mean(&policy.map(naive::k3));
    assert!((found.ratio_k3 - k3).abs() < 1e-15);
}

#[test]
fn what_an_algorithm_does_not_read_or_lacks_is_named() {
    let mut delta = Convention::new(Algorithm::Sapo);
    delta.delta = Some(3.0);
    let mut low = grpo(0.2, 0.2);
    low.delta = Some(1.2);
    let mut negative = grpo(-0.5, 0.2);
    negative.beta = 0.0;
    let mut beta = Convention::new(Algorithm::Rloo);
    beta.beta = 0.5;
    let mut kl = grpo(0.2, 0.2);
    kl.beta = 0.5;
    let mut group = convention(Algorithm::Dapo, 4);
    group.group_size = Some(4);
    let mut batches = convention(Algorithm::BnpoTrl, 0);
    batches.micro_batches = Some(&[1, 0]);
    let mut most = grpo(0.2, 0.2);
    most.max_length = Some(5);
    let cases = [
        (
            delta,
            "`delta` is 3, must be None: algorithm \"sapo\" as it is set does not read it",
        ),
        (
            low,
            "`delta` is 1.2, must be finite and above 1 + `epsilon_high` = 1.2",
        ),
        (
            negative,
            "`epsilon_low` is -0.5, must be finite and at least 0",
        ),
        (
            beta,
            "`beta` is 0.5, must be 0 for algorithm \"rloo\", whose KL is in the reward",
        ),
        (kl, "`reference` is not given, must be where `beta` is 0.5"),
        (
            group,
            "`group_size` is 4, must divide 2, the rows of `policy`",
        ),
        (
            batches,
            "`micro_batches` is [1, 0], must be numbers of at least 1 that add up to 2, the rows of `policy`",
        ),
        (
            most,
            "`max_length` is 5, must be None: algorithm \"grpo\" as it is set does not read it",
        ),
        (
            Convention::new(Algorithm::Dapo),
            "`dapo_denominator` is not given, must be for algorithm \"dapo\" as it is set",
        ),
    ];
    for (all, message) in cases {
        let error = tiny(&[-1.0, -1.0], None, &[1.0, 1.0], &all).expect_err(message);
        assert_eq!(error.to_string(), message);
    }
    let error = tiny::<f64>(&[], None, &[], &grpo(0.2, 0.2)).expect_err("no rows");
    assert_eq!(
        error.to_string(),
        "`policy` is empty, must hold at least one element"
    );
}

/// The digest below is that of the first algorithms on the scalar variant; every machine that runs this test compares it.
/// An algorithm that comes later is compared between instruction sets and numbers of threads.
#[test]
fn every_instruction_set_and_number_of_threads_gives_the_same_bits() {
    let data = Data::new(5, 12, 2501, 1.0);
    let narrow = |values: &[f64]| -> Vec<f32> { values.iter().map(|&x| x as f32).collect() };
    let arrays = [&data.policy, &data.old, &data.reference].map(|x| narrow(x));
    let advantages = narrow(&data.of_rows(&data.advantages));
    let process = Process::mine();
    let mut of_all = None;
    let of_every_algorithm = || {
        let (mut digest, mut recorded) = (Digest::default(), 0);
        for (number, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            let mut all = convention(algorithm, 4 * number + 1);
            all.micro_batches = all.micro_batches.map(|_| &[4, 8][..]);
            let by_row = algorithm.is_by_row() || number % 2 == 0;
            let (loss, gradient) = data.run(&all, by_row, Valid::Prefix(&data.lengths));
            digest.add_f64(&[loss.value]);
            digest.add_f64(&gradient);
            let named: Vec<f64> = loss.metrics.named().iter().map(|named| named.1).collect();
            digest.add_f64(&named);
            let step = Step {
                policy: &arrays[0],
                old: Some(&arrays[1]),
                reference: Some(&arrays[2]),
                advantages: Signal::Rows(&advantages),
                weights: None,
                rows: Rows::Padded {
                    rows: 12,
                    width: 2501,
                    valid: Valid::All,
                },
            };
            let mut gradient = vec![0.0f32; arrays[0].len()];
            let loss = policy_loss(&step, &all, &mut gradient).expect("good");
            digest.add_f64(&[loss.value]);
            digest.add_f32(&gradient);
            if number + 1 == RECORDED {
                recorded = digest.value();
            }
        }
        (recorded, digest.value())
    };
    for threads in [1, 2, 3] {
        process.set_threads(threads); // rows are shared out alike on every instruction set
        let digests = if threads == 1 {
            process.on_every_isa(of_every_algorithm)
        } else {
            vec![(rlkernels::isa::current(), of_every_algorithm())]
        };
        for (isa, (digest, all)) in digests {
            assert_eq!(digest, LOSS_DIGEST, "{isa}, {threads} threads: {digest:#x}");
            assert_eq!(all, *of_all.get_or_insert(all), "{isa}, {threads} threads");
        }
    }
}

/// How many algorithms the digest is of.
const RECORDED: usize = 11;
const LOSS_DIGEST: u64 = 0x207a_9874_02fc_8246;
