//! exp and log: their errors against the platform's float64 functions, their special values, and the same bits everywhere.

use rlkernels::math::{exp_f32, exp_f64, log_f32, log_f64};

use crate::variants::{Digest, Numbers, on_every_isa};

/// Error in units of the last place of `got`'s neighbourhood, `want` in more precision than `f32` has.
fn ulps_f32(got: f32, want: f64) -> f64 {
    if want.abs() > f64::from(f32::MAX) * (1.0 + 2f64.powi(-25)) || f64::from(got) == want {
        return if f64::from(got) == want || got.is_infinite() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    let exponent = want.abs().max(2f64.powi(-126)).log2().floor().max(-126.0);
    (f64::from(got) - want).abs() / 2f64.powf(exponent - 23.0)
}

/// Distance between two finite numbers of one sign, in representable numbers.
fn steps_f64(a: f64, b: f64) -> u64 {
    if a == b {
        0
    } else {
        a.to_bits().abs_diff(b.to_bits())
    }
}

fn worst_f32(
    bits: impl Iterator<Item = u32>,
    function: fn(&[f32], &mut [f32]) -> rlkernels::Result<()>,
    want: fn(f64) -> f64,
) -> f64 {
    let mut worst = 0.0f64;
    let mut bits = bits.peekable();
    while bits.peek().is_some() {
        let x: Vec<f32> = bits.by_ref().take(1 << 14).map(f32::from_bits).collect();
        let mut y = vec![0.0; x.len()];
        function(&x, &mut y).expect("equal lengths");
        for (&x, &y) in x.iter().zip(&y) {
            let want = want(f64::from(x));
            if want.is_nan() {
                assert_eq!(y.to_bits(), 0x7fc0_0000, "at {x}");
            } else {
                worst = worst.max(ulps_f32(y, want));
            }
        }
    }
    worst
}

#[test]
fn exp_and_log_of_f32_are_within_an_ulp_on_a_sample() {
    let step = 1 << 10;
    let sample = || (0..=u32::MAX / step).map(move |i| i * step + i % step);
    let exp = worst_f32(sample(), exp_f32, f64::exp);
    let log = worst_f32(sample(), log_f32, f64::ln);
    assert!(exp <= 1.0 && log <= 1.0, "exp {exp}, log {log}");
}

#[test]
#[ignore = "all 2^32 inputs: two minutes in release; `make record` runs it"]
fn exp_and_log_of_f32_are_within_an_ulp_everywhere() {
    let exp = worst_f32(0..=u32::MAX, exp_f32, f64::exp);
    let log = worst_f32(0..=u32::MAX, log_f32, f64::ln);
    println!("all 2^32 inputs: exp {exp:.4} ulp, log {log:.4} ulp");
    assert!(exp <= 1.0 && log <= 1.0, "exp {exp}, log {log}");
}

/// The platform's functions are right to less than an ulp, so one step beside them is less than 2 ulp.
fn check_f64(samples: usize) -> (u64, u64) {
    let mut numbers = Numbers::new(7);
    let (mut exp_steps, mut log_steps) = (0, 0);
    let (mut x, mut y) = (vec![0.0; 1 << 12], vec![0.0; 1 << 12]);
    for _ in 0..samples >> 12 {
        x.fill_with(|| (numbers.unit() - 0.5) * 1500.0 * numbers.unit());
        exp_f64(&x, &mut y).expect("equal lengths");
        for (&x, &y) in x.iter().zip(&y) {
            exp_steps = exp_steps.max(steps_f64(y, x.exp()));
        }
        x.fill_with(|| f64::from_bits(numbers.word() >> 1).abs().min(f64::MAX));
        log_f64(&x, &mut y).expect("equal lengths");
        for (&x, &y) in x.iter().zip(&y) {
            log_steps = log_steps.max(steps_f64(y, x.ln()));
        }
        x.fill_with(|| 1.0 + (numbers.unit() - 0.5) * numbers.unit());
        log_f64(&x, &mut y).expect("equal lengths");
        for (&x, &y) in x.iter().zip(&y) {
            log_steps = log_steps.max(steps_f64(y, x.ln()));
        }
    }
    (exp_steps, log_steps)
}

#[test]
fn exp_and_log_of_f64_are_at_most_one_step_beside_the_platforms() {
    let (exp, log) = check_f64(1 << 20);
    assert!(exp <= 1 && log <= 1, "exp {exp}, log {log}");
}

#[test]
#[ignore = "10^9 samples: a minute in release; `make record` runs it"]
fn exp_and_log_of_f64_are_at_most_one_step_beside_the_platforms_in_a_billion_samples() {
    let (exp, log) = check_f64(1_000_000_000);
    println!("10^9 samples: exp {exp} steps, log {log} steps beside the platform's");
    assert!(exp <= 1 && log <= 1, "exp {exp}, log {log}");
}

/// Worst cases for correct rounding (Lefèvre and Muller, "Worst Cases for Correct Rounding of the Elementary Functions in
/// Double Precision", 2001): within 2^-58 of a rounding boundary, so one step to either side is half an ulp more. Each
/// pair holds the bits of x and of the correctly rounded result, confirmed with mpmath at 400 bits.
#[test]
fn published_worst_cases_are_a_step_off_at_most() {
    let exp = [
        (0xc041_2d31_a20f_b38b, 0x3cd5_b0bf_3244_820a),
        (0x3e09_e9cb_bfd6_080b, 0x3ff0_0000_0033_d398),
        (0x4018_3d4b_cdeb_b3f4, 0x407a_c50b_409c_8aee),
    ];
    let log = [(0x6a56_2a88_6136_29b6, 0x407d_6479_eba7_c971)];
    let mut y = [0.0];
    for (x, want) in exp {
        exp_f64(&[f64::from_bits(x)], &mut y).expect("equal lengths");
        assert!(
            steps_f64(y[0], f64::from_bits(want)) <= 1,
            "exp({x:#x}) = {y:?}"
        );
    }
    for (x, want) in log {
        log_f64(&[f64::from_bits(x)], &mut y).expect("equal lengths");
        assert!(
            steps_f64(y[0], f64::from_bits(want)) <= 1,
            "log({x:#x}) = {y:?}"
        );
    }
}

#[test]
fn special_values_of_exp() {
    let x = [
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
        0.0,
        -0.0,
        710.0,
        -746.0,
        5e-324,
    ];
    let mut y = [0.0; 9];
    exp_f64(&x, &mut y).expect("equal lengths");
    assert_eq!(y[0], f64::INFINITY);
    assert_eq!(y[1].to_bits(), 0);
    assert_eq!(
        (y[2].to_bits(), y[3].to_bits()),
        (0x7ff8 << 48, 0x7ff8 << 48)
    );
    assert_eq!(&y[4..], &[1.0, 1.0, f64::INFINITY, 0.0, 1.0]);
}

#[test]
fn special_values_of_log() {
    let x = [
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.0,
        -0.0,
        -1.0,
        1.0,
        5e-324,
    ];
    let mut y = [0.0; 8];
    log_f64(&x, &mut y).expect("equal lengths");
    assert_eq!(y[0], f64::INFINITY);
    for nan in [y[1], y[2], y[5]] {
        assert_eq!(nan.to_bits(), 0x7ff8 << 48);
    }
    assert_eq!(
        (y[3], y[4], y[6]),
        (f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0)
    );
    assert!(steps_f64(y[7], 5e-324f64.ln()) <= 1);
}

/// The same numbers on x86-64 and under NEON, natively or emulated: the digest below was printed by the scalar variant
/// and is compared on every machine that runs this test.
#[test]
fn every_instruction_set_gives_the_same_bits() {
    let digests = on_every_isa(|| {
        let mut numbers = Numbers::new(11);
        let mut digest = Digest::default();
        let x: Vec<f64> = (0..4099).map(|_| (numbers.unit() - 0.5) * 1600.0).collect();
        let bits: Vec<f64> = (0..4099).map(|_| f64::from_bits(numbers.word())).collect();
        for x in [x, bits] {
            let mut y = vec![0.0; x.len()];
            exp_f64(&x, &mut y).expect("equal lengths");
            digest.add_f64(&y);
            log_f64(&x, &mut y).expect("equal lengths");
            digest.add_f64(&y);
            let narrow: Vec<f32> = x.iter().map(|&x| x as f32 * 0.125).collect();
            let mut y = vec![0.0; x.len()];
            exp_f32(&narrow, &mut y).expect("equal lengths");
            digest.add_f32(&y);
            log_f32(&narrow, &mut y).expect("equal lengths");
            digest.add_f32(&y);
        }
        digest.value()
    });
    for (isa, digest) in digests {
        assert_eq!(digest, MATH_DIGEST, "{isa}: {digest:#x}");
    }
}

const MATH_DIGEST: u64 = 0x2a8d_3b3a_841b_fd0f;
