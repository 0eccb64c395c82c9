//! What the targets share: numbers from a few bytes, and the comparison of all instruction sets.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use rlkernels::isa;

/// A number from two bytes: ordinary ones mostly, every special one often enough.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub struct Number(u16);

const SPECIAL: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    5e-324,
    1e-45,
    f64::MIN_POSITIVE,
    1e38,
    -1e38,
    f64::MAX,
    f64::MIN,
    1e-8,
    -745.0,
];

impl Number {
    pub fn value(self) -> f64 {
        if self.0 < 512 {
            SPECIAL[usize::from(self.0 % 16)]
        } else {
            (f64::from(self.0) - 32_768.0) / 1024.0 // −31.5 to 32
        }
    }
}

pub fn f64s(numbers: &[Number]) -> Vec<f64> {
    numbers.iter().map(|n| n.value()).collect()
}

pub fn f32s(numbers: &[Number]) -> Vec<f32> {
    numbers.iter().map(|n| n.value() as f32).collect()
}

/// Runs `body` on every instruction set; all must return the same. Errors are compared as text: some hold a NaN.
pub fn everywhere<T: PartialEq + std::fmt::Debug>(mut body: impl FnMut() -> T) {
    let mut results = isa::available().into_iter().map(|isa| {
        isa::choose(isa).expect("it is available");
        (isa, body())
    });
    let (_, first) = results.next().expect("scalar is always available");
    for (isa, result) in results {
        assert_eq!(result, first, "{isa} differs from scalar");
    }
}

pub fn bits64(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

pub fn bits32(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}
