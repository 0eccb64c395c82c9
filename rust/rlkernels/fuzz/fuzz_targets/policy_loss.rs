#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::kl::Estimator;
use rlkernels::policy_loss::{
    Algorithm, CispoBound, Convention, DapoDenominator, KlRatio, Signal, Step, policy_loss,
};
use rlkernels::rows::{Rows, Valid};
use rlkernels_fuzz::{Number, bits64, everywhere, f64s};

#[derive(Arbitrary, Debug)]
struct Input {
    tokens: Vec<(Number, Number, Number)>,
    gains: Vec<Number>,
    slots: bool,
    on_policy: bool,
    mask: Vec<bool>,
    rows: u8,
    algorithm: u8,
    given: u16,
    numbers: [Number; 7],
    whole: i8,
    choices: u8,
}

fuzz_target!(|input: Input| {
    let array = |pick: fn(&(Number, Number, Number)) -> Number| {
        f64s(&input.tokens.iter().map(pick).collect::<Vec<_>>())
    };
    let (policy, old, reference) = (array(|t| t.0), array(|t| t.1), array(|t| t.2));
    let rows = usize::from(input.rows).max(1);
    let width = policy.len() / rows;
    let mask: Vec<u8> = input.mask.iter().map(|&m| u8::from(m)).collect();
    let valid = if mask.len() == policy.len() {
        Valid::Mask(&mask)
    } else {
        Valid::All
    };
    let gains = f64s(&input.gains);
    let advantages = if input.slots {
        Signal::Slots(&gains[..])
    } else {
        Signal::Rows(&gains[..])
    };
    let given = |bit: u32| input.given >> bit & 1 == 1;
    let number = |i: usize| given(i as u32).then(|| input.numbers[i].value());
    let whole = i64::from(input.whole);
    let blocks = [whole, 1];
    let convention = Convention {
        algorithm: Algorithm::ALL[usize::from(input.algorithm) % Algorithm::ALL.len()],
        epsilon_low: number(0),
        epsilon_high: number(1),
        delta: number(2),
        beta: number(3).unwrap_or(0.0),
        kl_estimator: [Estimator::K1, Estimator::K2, Estimator::K3][usize::from(input.choices % 3)],
        kl_ratio: [KlRatio::None, KlRatio::Token, KlRatio::Sequence]
            [usize::from(input.choices / 3 % 3)],
        max_length: given(4).then_some(whole),
        micro_batches: given(5).then_some(&blocks[..]),
        dapo_denominator: given(6).then_some(
            [
                DapoDenominator::Global,
                DapoDenominator::Group,
                DapoDenominator::Trl,
            ][usize::from(input.choices / 9 % 3)],
        ),
        group_size: given(7).then_some(whole),
        tokens_in_step: given(8).then(|| input.numbers[4].value()),
        cispo_bound: given(9).then_some(
            [CispoBound::Relative, CispoBound::Absolute][usize::from(input.choices / 27 % 2)],
        ),
        sapo_temperature_positive: given(10).then(|| input.numbers[5].value()),
        sapo_temperature_negative: given(11).then(|| input.numbers[6].value()),
    };
    let step = Step {
        policy: &policy,
        old: (!input.on_policy).then_some(&old[..]),
        reference: given(12).then_some(&reference[..]),
        advantages,
        weights: given(13).then_some(advantages),
        rows: Rows::Padded { rows, width, valid },
    };
    everywhere(|| {
        let mut gradient = vec![7.0; policy.len()];
        let loss = policy_loss(&step, &convention, &mut gradient);
        let text = loss
            .as_ref()
            .map_or_else(ToString::to_string, |loss| format!("{loss:?}"));
        // On an error the gradient holds anything; that no kernel panicked is what is tested.
        (
            text,
            if loss.is_ok() {
                bits64(&gradient)
            } else {
                Vec::new()
            },
        )
    });
});
