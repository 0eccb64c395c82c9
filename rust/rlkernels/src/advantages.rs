//! Group-relative advantages.
//!
//! Sources: DeepSeekMath (arXiv 2402.03300, eq. 3: group z-score), Dr. GRPO (arXiv 2503.20783: no divisor),
//! RLOO (arXiv 2402.14740: leave-one-out baseline).

use std::str::FromStr;

use crate::compensated::Sum;
use crate::{Error, Float, Result};

/// What the centred rewards are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The standard deviation of the group.
    Group,
    /// The standard deviation of all scored rewards of the batch.
    Batch,
    /// 1.
    None,
}

/// How `eps` enters the divisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsMode {
    /// std + eps
    Add,
    /// sqrt(var + eps)
    Inside,
    /// std, and advantages of 0 where std < eps
    Threshold,
}

/// What is subtracted from a reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// The mean of the scored rewards of the group.
    Mean,
    /// The mean of the other scored rewards of the group.
    LeaveOneOut,
}

impl FromStr for Scale {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "group" => Ok(Self::Group),
            "batch" => Ok(Self::Batch),
            "none" => Ok(Self::None),
            _ => Err(Error::UnknownChoice {
                argument: "scale",
                found: name.into(),
                legal: "\"group\", \"batch\", \"none\"",
            }),
        }
    }
}

impl FromStr for EpsMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "add" => Ok(Self::Add),
            "inside" => Ok(Self::Inside),
            "threshold" => Ok(Self::Threshold),
            _ => Err(Error::UnknownChoice {
                argument: "eps_mode",
                found: name.into(),
                legal: "\"add\", \"inside\", \"threshold\"",
            }),
        }
    }
}

impl FromStr for Baseline {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "mean" => Ok(Self::Mean),
            "leave-one-out" => Ok(Self::LeaveOneOut),
            _ => Err(Error::UnknownChoice {
                argument: "baseline",
                found: name.into(),
                legal: "\"mean\", \"leave-one-out\"",
            }),
        }
    }
}

/// The convention by which advantages are computed. `eps` is rounded once to the data's type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convention {
    /// What the centred rewards are divided by.
    pub scale: Scale,
    /// 0: the variance divides by n; 1: by n − 1. n counts the scored rewards.
    pub ddof: i64,
    /// Finite and at least 0, in the unit of the rewards (`Inside`: its square).
    pub eps: f64,
    /// How `eps` enters the divisor.
    pub eps_mode: EpsMode,
    /// What is subtracted.
    pub baseline: Baseline,
}

/// Writes `A_i = (R_i − baseline_i) / divisor` to `out`, one element per reward.
///
/// `rewards` (B) is prompt-major: `group_size` rewards of one prompt after the other. A NaN reward means "not scored":
/// it is left out of every mean and standard deviation, and its own advantage is 0. A group whose scored rewards are all
/// equal (one scored member included) gives exactly 0, by comparison and not by a threshold. A divisor is never 0: a
/// group that is not constant has a positive standard deviation, so no NaN arises even with `eps` 0.
///
/// `|error| ≤ k·2u·max|R_g| / divisor`, k = 4 for `f32` (computed in `f64`) and 8 for `f64` (compensated sums, exact
/// residual of the mean, and a power-of-two scaling that keeps squares and sums from overflowing or vanishing).
///
/// # Errors
/// Empty rewards; a group size below 1, or below 2 with a leave-one-out baseline; a length that the group size does not
/// divide; an infinite reward; `ddof` other than 0 or 1; `eps` negative or not finite in the data's type.
pub fn group_advantages<T: Float>(
    rewards: &[T],
    group_size: i64,
    convention: &Convention,
    out: &mut [T],
) -> Result<()> {
    let group_size = check(rewards, group_size, convention)?;
    crate::rows::same_length("out", out.len(), rewards.len(), "`rewards`")?;
    let eps = T::narrow(convention.eps).widen();
    let batch = if convention.scale == Scale::Batch {
        let scale = power_of_two(Range::of(rewards, 0)?.greatest(), eps);
        let divisor = divisor(Moments::of(rewards, scale), eps, scale, convention);
        Some((scale, divisor))
    } else {
        None
    };
    for (number, group) in rewards.chunks_exact(group_size).enumerate() {
        let start = number * group_size;
        let out = &mut out[start..start + group_size];
        let range = Range::of(group, start)?;
        if range.is_constant() {
            out.fill(T::narrow(0.0));
            continue;
        }
        let scale = batch.map_or_else(|| power_of_two(range.greatest(), eps), |(scale, _)| scale);
        let moments = Moments::of(group, scale);
        let divisor = match convention.scale {
            Scale::Group => divisor(moments, eps, scale, convention),
            Scale::Batch => batch.and_then(|(_, divisor)| divisor),
            Scale::None => Some(scale),
        };
        match divisor {
            Some(divisor) => write(group, moments, scale, divisor, convention.baseline, out),
            None => out.fill(T::narrow(0.0)),
        }
    }
    Ok(())
}

fn check<T: Float>(rewards: &[T], group_size: i64, convention: &Convention) -> Result<usize> {
    let eps = T::narrow(convention.eps).widen();
    if !(convention.eps >= 0.0 && eps.is_finite()) {
        return Err(Error::Eps {
            found: if convention.eps.is_finite() && convention.eps > 0.0 {
                eps
            } else {
                convention.eps
            },
            dtype: T::NAME,
        });
    }
    if !(0..=1).contains(&convention.ddof) {
        return Err(Error::Ddof {
            found: convention.ddof,
        });
    }
    if group_size < 1 {
        return Err(Error::TooSmall {
            argument: "group_size",
            found: group_size,
            least: 1,
        });
    }
    if rewards.is_empty() {
        return Err(Error::Empty {
            argument: "rewards",
        });
    }
    let size = usize::try_from(group_size).unwrap_or(usize::MAX);
    if size < 2 && convention.baseline == Baseline::LeaveOneOut {
        return Err(Error::NoOthers { group_size: size });
    }
    if rewards.len().is_multiple_of(size) {
        Ok(size)
    } else {
        Err(Error::NotDivisible {
            length: rewards.len(),
            group_size: size,
        })
    }
}

/// The least and the greatest scored reward; least > greatest where none is scored.
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    fn of<T: Float>(rewards: &[T], start: usize) -> Result<Self> {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for (index, reward) in rewards.iter().map(|r| r.widen()).enumerate() {
            if reward.is_infinite() {
                return Err(Error::InfiniteReward {
                    index: start + index,
                    found: reward,
                });
            }
            // A comparison with NaN is false: unscored rewards pass by.
            if reward < least {
                least = reward;
            }
            if reward > most {
                most = reward;
            }
        }
        Ok(Self { least, most })
    }

    fn is_constant(&self) -> bool {
        self.least >= self.most
    }

    fn greatest(&self) -> f64 {
        self.least.abs().max(self.most.abs())
    }
}

/// Rewards whose greatest magnitude lies outside 2^±400 are brought into the middle of the range, where neither squares
/// nor sums of 2^60 of them overflow and differences of one unit in the last place keep their squares.
fn power_of_two(greatest: f64, eps: f64) -> f64 {
    let (tiny, huge) = (exp2(-400), exp2(400));
    if greatest > huge {
        exp2(-600)
    } else if greatest < tiny && eps < huge {
        exp2(600)
    } else {
        1.0
    }
}

/// 2^`exponent` for a normal result.
fn exp2(exponent: i16) -> f64 {
    f64::from_bits(u64::from((1023 + exponent).unsigned_abs()) << 52)
}

/// Mean and variance of the scored rewards, each multiplied by a power of two first.
#[derive(Clone, Copy)]
struct Moments {
    scored: f64,
    /// The mean is `mean + residual`, exact to twice the working precision.
    mean: f64,
    residual: f64,
    /// Σ of squared deviations.
    squares: f64,
}

impl Moments {
    fn of<T: Float>(rewards: &[T], scale: f64) -> Self {
        let scored_rewards = || {
            rewards
                .iter()
                .map(|r| r.widen())
                .filter(|r| !r.is_nan())
                .map(|r| r * scale)
        };
        let mut sum = Sum::<true>::default();
        let mut count = 0usize;
        for reward in scored_rewards() {
            sum.add(reward);
            count += 1;
        }
        let scored = count.max(1) as f64;
        let (high, low) = sum.pair();
        let mean = high / scored;
        let remainder = (-mean).mul_add(scored, high); // exact: the remainder of a division fits
        let residual = (remainder + low) / scored;
        let mut squares = Sum::<true>::default();
        for reward in scored_rewards() {
            let deviation = (reward - mean) - residual;
            squares.add(deviation * deviation);
        }
        Self {
            scored,
            mean,
            residual,
            squares: squares.value(),
        }
    }
}

/// The scaled divisor; `None` where it lies below the threshold.
fn divisor(moments: Moments, eps: f64, scale: f64, convention: &Convention) -> Option<f64> {
    let variance = moments.squares / (moments.scored - convention.ddof as f64);
    let std = variance.sqrt();
    match convention.eps_mode {
        EpsMode::Add => Some(std + eps * scale),
        EpsMode::Inside if scale == 1.0 => Some((variance + eps).sqrt()),
        EpsMode::Inside => Some(length(std, eps.sqrt() * scale)), // eps·scale² may leave the range
        EpsMode::Threshold => (std >= eps * scale).then_some(std),
    }
}

/// sqrt(a² + b²) of two magnitudes without overflow; the platform's `hypot` differs between platforms.
fn length(a: f64, b: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    let ratio = small / large;
    large * (1.0 + ratio * ratio).sqrt()
}

fn write<T: Float>(
    group: &[T],
    moments: Moments,
    scale: f64,
    divisor: f64,
    baseline: Baseline,
    out: &mut [T],
) {
    // R_i − mean of the others = (R_i − mean)·n/(n − 1); n ≥ 2, for a group with one scored member is constant.
    let factor = match baseline {
        Baseline::Mean => 1.0,
        Baseline::LeaveOneOut => moments.scored / (moments.scored - 1.0),
    };
    for (out, reward) in out.iter_mut().zip(group) {
        let reward = reward.widen();
        *out = T::narrow(if reward.is_nan() {
            0.0
        } else {
            let deviation = (reward * scale - moments.mean) - moments.residual;
            deviation * factor / divisor
        });
    }
}
