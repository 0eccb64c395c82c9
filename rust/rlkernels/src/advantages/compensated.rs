//! The compensated path, for any group and for a whole batch: unscored members, huge, tiny and nearly equal rewards.
//!
//! Sums are compensated and the mean is a double-double, so the relative error of a deviation is 2u, whatever the mean.
//! Rewards are scaled by a power of two, so that squares and sums neither overflow nor underflow. The remaining roundings
//! are those of the deviation (2u) and of its squares' sum, root, eps, reciprocal and product (5u):
//! 7u·|R − mean| / divisor, where |R − mean| ≤ 2·max|R|.

use super::convention::{Baseline, Convention, EpsMode, Scale};
use crate::chunks::padded;
use crate::double::Double;
use crate::isa::{F64_LANES, Kernel, Lanes, Mask, Simd};
use crate::{Error, Float, Result};

/// The divisor of all groups of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Divisor {
    /// The power of two that the rewards are multiplied by first.
    pub(super) scale: f64,
    /// The divisor of the scaled rewards; `None` where it lies below the threshold.
    pub(super) value: Option<f64>,
}

/// Computes the divisor of a whole batch.
pub(super) struct Batch<'a, T> {
    pub(super) rewards: &'a [T],
    pub(super) eps: f64,
    pub(super) convention: &'a Convention,
}

impl<T: Float> Kernel for Batch<'_, T> {
    type Output = Result<Divisor>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<Divisor> {
        let range = Range::of(s, self.rewards, 0)?;
        let scale = power_of_two(range.greatest(), self.eps);
        let moments = Moments::of(s, self.rewards, scale);
        let value = divisor(moments, self.eps, scale, self.convention);
        Ok(Divisor { scale, value })
    }
}

/// Writes the advantages of one group; `start` is the index of its first reward.
#[inline(always)]
pub(super) fn group<S: Simd, T: Float>(
    s: S,
    group: &[T],
    start: usize,
    (eps, convention, batch): (f64, &Convention, Option<Divisor>),
    out: &mut [T],
) -> Result<()> {
    let range = Range::of(s, group, start)?;
    if range.is_constant() {
        out.fill(T::narrow(0.0));
        return Ok(());
    }
    // not the power of two of the batch, under which a small group in a huge batch would underflow
    let scale = match batch {
        Some(_) => power_of_two(range.greatest(), 0.0),
        None => power_of_two(range.greatest(), eps),
    };
    let moments = Moments::of(s, group, scale);
    let (divisor, back) = match (convention.scale, batch) {
        (Scale::None, _) => (Some(scale), (1.0, 1.0)),
        (_, Some(batch)) if batch.scale == scale => (batch.value, (1.0, 1.0)),
        (_, Some(batch)) => (batch.value, (batch.scale, 1.0 / scale)), // both at most 1
        (_, None) => (divisor(moments, eps, scale, convention), (1.0, 1.0)),
    };
    match divisor {
        Some(divisor) => {
            let by = (scale, divisor, back);
            write(s, group, moments, by, convention.baseline, out);
        }
        None => out.fill(T::narrow(0.0)),
    }
    Ok(())
}

/// The least and the greatest scored reward; least > greatest where none is scored.
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    #[inline(always)]
    fn of<S: Simd, T: Float>(s: S, rewards: &[T], start: usize) -> Result<Self> {
        let (mut least, mut most) = (s.f64(f64::INFINITY), s.f64(f64::NEG_INFINITY));
        let (chunks, rest) = rewards.as_chunks::<F64_LANES>();
        for chunk in chunks {
            let reward = T::load(s, chunk);
            // A comparison with NaN is false, so unscored rewards are skipped.
            least = reward.min(least);
            most = reward.max(most);
        }
        let rest = T::load(s, &padded(rest, T::narrow(f64::NAN)));
        let (least, most) = (rest.min(least).array(), rest.max(most).array());
        let smaller = |a: f64, b: f64| if b < a { b } else { a };
        let larger = |a: f64, b: f64| if b > a { b } else { a };
        let range = Self {
            least: least.into_iter().fold(f64::INFINITY, smaller),
            most: most.into_iter().fold(f64::NEG_INFINITY, larger),
        };
        if range.least == f64::NEG_INFINITY || range.most == f64::INFINITY {
            return Err(infinite(rewards, start));
        }
        Ok(range)
    }

    fn is_constant(&self) -> bool {
        self.least >= self.most
    }

    fn greatest(&self) -> f64 {
        let (a, b) = (self.least.abs(), self.most.abs());
        if a > b { a } else { b }
    }
}

#[cold]
fn infinite<T: Float>(rewards: &[T], start: usize) -> Error {
    let index = rewards.iter().position(|r| r.widen().is_infinite());
    let index = index.unwrap_or(0);
    Error::InfiniteReward {
        index: start + index,
        found: rewards[index].widen(),
    }
}

/// The power of two by which rewards are scaled: 1 if their greatest magnitude lies within 2^±400. Outside, it moves them
/// to where neither squares nor sums of 2^60 of them overflow, and squares of differences of one ulp do not underflow.
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
pub(super) const fn exp2(exponent: i16) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Mean and squared deviations of the scored rewards, which are multiplied by a power of two first.
#[derive(Clone, Copy)]
struct Moments {
    scored: usize,
    mean: Double<f64>,
    /// Σ of squared deviations.
    squares: f64,
}

impl Moments {
    #[inline(always)]
    fn of<S: Simd, T: Float>(s: S, rewards: &[T], scale: f64) -> Self {
        let (chunks, rest) = rewards.as_chunks::<F64_LANES>();
        let last = [padded(rest, T::narrow(f64::NAN))];
        let (by, zero) = (s.f64(scale), s.f64(0.0));
        let (mut sum, mut scored) = (Double::zero(s), 0);
        for chunk in chunks.iter().chain(&last) {
            let reward = T::load(s, chunk);
            let is_scored = reward.eq(reward);
            scored += is_scored.count() as usize;
            sum = sum.plus(S::F64::select(is_scored, reward * by, zero));
        }
        let scored = scored.max(1);
        let mean = sum.total().over(scored);
        let (high, low) = (s.f64(mean.high), s.f64(mean.low));
        let mut squares = Double::zero(s);
        for chunk in chunks.iter().chain(&last) {
            let reward = T::load(s, chunk);
            let deviation = (reward * by - high) - low;
            squares = squares.plus(S::F64::select(
                reward.eq(reward),
                deviation * deviation,
                zero,
            ));
        }
        Self {
            scored,
            mean,
            squares: squares.total().value(),
        }
    }
}

/// The scaled divisor; `None` where it lies below the threshold.
fn divisor(moments: Moments, eps: f64, scale: f64, convention: &Convention) -> Option<f64> {
    let variance = moments.squares / (moments.scored as f64 - convention.ddof as f64);
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

#[inline(always)]
fn write<S: Simd, T: Float>(
    s: S,
    group: &[T],
    moments: Moments,
    (scale, divisor, back): (f64, f64, (f64, f64)),
    baseline: Baseline,
    out: &mut [T],
) {
    // R_i − mean of the others = (R_i − mean)·n/(n − 1); n ≥ 2, for a group with one scored member is constant.
    let factor = match baseline {
        Baseline::Mean => 1.0,
        Baseline::LeaveOneOut => {
            let scored = moments.scored as f64;
            scored / (scored - 1.0)
        }
    };
    let (by, mean) = (s.f64(scale), moments.mean);
    let (high, low) = (s.f64(mean.high), s.f64(mean.low));
    let (factor, divisor, zero) = (s.f64(factor), s.f64(divisor), s.f64(0.0));
    let back = (s.f64(back.0), s.f64(back.1));
    let (chunks, rest) = group.as_chunks::<F64_LANES>();
    let (outs, out_rest) = out.as_chunks_mut::<F64_LANES>();
    let last = padded(rest, T::narrow(0.0));
    let (lasts, mut out_last) = ([last], [last]);
    let (lasts, out_lasts) = if rest.is_empty() {
        (&lasts[..0], &mut out_last[..0])
    } else {
        (&lasts[..], &mut out_last[..])
    };
    for (chunk, out) in chunks
        .iter()
        .chain(lasts)
        .zip(outs.iter_mut().chain(out_lasts))
    {
        let reward = T::load(s, chunk);
        let quotient = ((reward * by - high) - low) * factor / divisor;
        let advantage = quotient * back.0 * back.1;
        T::store(s, S::F64::select(reward.eq(reward), advantage, zero), out);
    }
    out_rest.copy_from_slice(&out_last[0][..rest.len()]);
}
