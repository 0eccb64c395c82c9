//! The error of `f64` advantages in units of 2^-53 · max|R| / divisor, against arithmetic of twice the precision.

use rlkernels::advantages::{Baseline, Convention, EpsMode, Scale, group_advantages};

use crate::variants::Numbers;

/// `0 + 1`, unevaluated; Dekker's and Knuth's operations.
#[derive(Clone, Copy)]
struct Double(f64, f64);

impl Double {
    fn add(self, other: Self) -> Self {
        let sum = self.0 + other.0;
        let part = sum - self.0;
        let error = (self.0 - (sum - part)) + (other.0 - part) + self.1 + other.1;
        let high = sum + error;
        Self(high, error - (high - sum))
    }

    fn negated(self) -> Self {
        Self(-self.0, -self.1)
    }

    fn times(self, other: Self) -> Self {
        let product = self.0 * other.0;
        let error = self.0.mul_add(other.0, -product) + (self.0 * other.1 + self.1 * other.0);
        let high = product + error;
        Self(high, error - (high - product))
    }

    fn over(self, other: Self) -> Self {
        let quotient = self.0 / other.0;
        let rest = self.add(other.times(Self(quotient, 0.0)).negated());
        let low = (rest.0 + rest.1) / other.0;
        let high = quotient + low;
        Self(high, low - (high - quotient))
    }

    fn root(self) -> Self {
        let root = self.0.sqrt();
        let rest = self.add(Self(root, 0.0).times(Self(root, 0.0)).negated());
        let low = (rest.0 + rest.1) / (2.0 * root);
        let high = root + low;
        Self(high, low - (high - root))
    }
}

/// The largest error of a group.
fn error_of(group: &[f64], convention: &Convention) -> f64 {
    let one = |x: f64| Double(x, 0.0);
    let n = group.len() as f64;
    let sum = |values: &[Double]| values.iter().fold(one(0.0), |sum, &x| sum.add(x));
    let exact: Vec<Double> = group.iter().map(|&x| one(x)).collect();
    let mean = sum(&exact).over(one(n));
    let deviations: Vec<Double> = exact.iter().map(|x| x.add(mean.negated())).collect();
    let squares: Vec<Double> = deviations.iter().map(|x| x.times(*x)).collect();
    let variance = sum(&squares).over(one(n - convention.ddof as f64));
    let divisor = match convention.eps_mode {
        EpsMode::Inside => variance.add(one(convention.eps)).root(),
        _ => variance.root().add(one(convention.eps)),
    };
    let factor = match convention.baseline {
        Baseline::Mean => one(1.0),
        Baseline::LeaveOneOut => one(n).over(one(n - 1.0)),
    };
    let greatest = group.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let unit = 2f64.powi(-53) * greatest / divisor.0;
    let mut out = vec![9.0; group.len()];
    group_advantages(group, group.len() as i64, convention, &mut out).unwrap();
    let errors = deviations.iter().zip(&out).map(|(deviation, &got)| {
        let want = deviation.times(factor).over(divisor);
        ((got - want.0) - want.1).abs() / unit
    });
    errors.fold(0.0, f64::max)
}

/// A group of one of the kinds that strain one part of the computation.
fn group(numbers: &mut Numbers, size: usize) -> Vec<f64> {
    let kind = numbers.word() % 6;
    let level = numbers.unit() + 0.5;
    let power = 2f64.powi((numbers.word() % 40) as i32);
    let tremor = 2f64.powi(-((numbers.word() % 52) as i32));
    let outlier = numbers.word() as usize % size;
    let mut group: Vec<f64> = (0..size)
        .map(|i| {
            let x = numbers.unit() - 0.5;
            match kind {
                0 => x,
                1 => x + power,              // a large mean
                2 if i == outlier => -level, // one against all
                2 => level + x * tremor,
                3 => level.copysign(x) + x * tremor, // halves
                4 => level + (x * 16.0).round() * 2f64.powi(-52) * tremor.recip().min(64.0), // nearly equal
                _ => x.powi(5) * power, // of all sizes
            }
        })
        .collect();
    if group.iter().all(|x| x == &group[0]) {
        group[outlier] += 1.0;
    }
    group
}

fn worst(groups: usize) -> f64 {
    let mut numbers = Numbers::new(12);
    let sizes = [2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 31, 32, 48, 64, 65, 100];
    let mut largest = 0.0f64;
    for _ in 0..groups {
        let size = sizes[numbers.word() as usize % sizes.len()];
        let group = group(&mut numbers, size);
        let word = numbers.word();
        let convention = Convention {
            scale: Scale::Group,
            ddof: (word & 1) as i64,
            eps: if word & 2 == 0 { 0.0 } else { 1e-4 },
            eps_mode: if word & 4 == 0 {
                EpsMode::Add
            } else {
                EpsMode::Inside
            },
            baseline: if word & 8 == 0 {
                Baseline::Mean
            } else {
                Baseline::LeaveOneOut
            },
        };
        largest = largest.max(error_of(&group, &convention));
    }
    largest
}

#[test]
fn an_advantage_is_within_16u() {
    let largest = worst(20_000);
    assert!((1.0..=16.0).contains(&largest), "{largest}u");
}

#[test]
#[ignore = "ten million groups, minutes in release"]
fn an_advantage_is_within_16u_in_ten_million_groups() {
    let largest = worst(10_000_000);
    println!("{largest}u");
    assert!((1.0..=16.0).contains(&largest), "{largest}u");
}
