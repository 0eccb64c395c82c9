//! How far the policy has moved from the policy that sampled: ratios, corrections and their statistics.
//!
//! With D = policy − old of a token, a ratio is exp(D) of the token (PPO, arXiv 1707.06347), of the mean of D over a
//! sequence (GSPO, arXiv 2507.18071, eq. 7) or of its sum (RLOO, arXiv 2402.14740).

mod differences;
mod moments;
mod statistics;

pub use statistics::{Moments, Statistics, ratio_statistics};

use crate::choice::choice;
use crate::chunks::{Chunk, Chunks, Columns};
use crate::data::Data;
use crate::error::same_length;
use crate::isa::{F64_LANES, Kernel, Lanes, Simd, dispatch};
use crate::math::NAN_64;
use crate::rows::{CountedRow, Rows};
use crate::{Error, Float, Result, parallel};
use differences::{PARALLEL_SLOTS, difference, row_sum};

choice! {
    /// The level of a ratio: of tokens, or of sequences.
    pub enum Level: "level" {
        /// exp(D) of every token.
        Token = "token",
        /// exp of the mean of D over a sequence.
        SequenceMean = "seq_mean",
        /// exp of the sum of D over a sequence.
        SequenceSum = "seq_sum",
    }
}

choice! {
    /// What happens to a ratio outside its bounds.
    pub enum Correction: "correction" {
        /// Truncated importance sampling: clamped to the bounds.
        Truncated = "tis",
        /// Masked importance sampling: 0 outside the bounds, which belong to the inside.
        Masked = "mis",
    }
}

/// How a ratio becomes the result.
#[derive(Clone, Copy)]
struct Usage {
    correction: Option<Correction>,
    low: f64,
    high: f64,
    /// A NaN in `old` means a difference of 0.
    nan_is_none: bool,
}

/// Writes exp of policy − old: of every token, 0 where none is, or of every sequence, 1 for one without tokens.
///
/// `out` has one element per slot for [`Level::Token`], else one per sequence. The error of a token's ratio is at most
/// k · 2u |r|, of a sequence's k · 2u |r| (1 + u Σ|D|), k = 4 for `f32` and 8 for `f64`, results below the normal range
/// aside. An overflow gives +inf. A NaN on a token gives the positive quiet NaN, and so do two equal infinities.
///
/// # Errors
/// Lengths that do not match; see [`Rows::check`].
pub fn importance_ratio<T: Float>(
    policy: &[T],
    old: &[T],
    level: Level,
    rows: &Rows<'_>,
    out: &mut [T],
) -> Result<()> {
    same_length("old", old.len(), policy.len(), "`policy`")?;
    let plain = Usage {
        correction: None,
        low: 0.0,
        high: f64::INFINITY,
        nan_is_none: false,
    };
    computed(policy, old, level, rows, plain, out)
}

/// The parameters of [`importance_weights`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightConvention {
    /// What happens to a ratio outside its bounds.
    pub correction: Correction,
    /// Whose ratio: [`Level::Token`] or [`Level::SequenceSum`].
    pub level: Level,
    /// Lower bound; `None` for none.
    pub c_min: Option<f64>,
    /// Upper bound.
    pub c_max: f64,
}

/// Writes off-policy weights: ratios r = exp(old − sampling), clamped to [`c_min`, `c_max`] (TIS) or kept inside it, ends
/// included, and 0 outside (MIS).
///
/// `out`, accuracy and special values are those of [`importance_ratio`], with `old` for its `policy` and `sampling` for its
/// `old`; but a NaN in `sampling`, where the sampler recorded nothing, counts as a difference of 0. The bounds are rounded
/// to the data's type. Source: Yao et al. (2025), "Your efficient RL framework secretly brings you off-policy RL training"
/// (TIS); TRL's `vllm_importance_sampling_mode` (MIS).
///
/// # Errors
/// A level other than those two, bounds out of order, lengths that do not match; see [`Rows::check`].
pub fn importance_weights<T: Float>(
    old: &[T],
    sampling: &[T],
    convention: &WeightConvention,
    rows: &Rows<'_>,
    out: &mut [T],
) -> Result<()> {
    same_length("sampling", sampling.len(), old.len(), "`old`")?;
    if convention.level == Level::SequenceMean {
        return Err(Error::UnknownChoice {
            argument: "level",
            found: "seq_mean".into(),
            legal: "\"token\", \"seq_sum\"",
        });
    }
    let rounded = |value| T::narrow(value).widen();
    let most = rounded(convention.c_max);
    if !(most > 0.0 && most < f64::INFINITY) {
        return Err(Error::OutOfRange {
            argument: "c_max",
            found: most,
            wanted: "finite and above 0",
        });
    }
    let least = convention.c_min.map_or(0.0, rounded);
    if !(least >= 0.0 && least <= most) {
        return Err(Error::Bounds { found: least, most });
    }
    let bounded = Usage {
        correction: Some(convention.correction),
        low: least,
        high: most,
        nan_is_none: true,
    };
    computed(old, sampling, convention.level, rows, bounded, out)
}

fn computed<T: Float>(
    policy: &[T],
    old: &[T],
    level: Level,
    rows: &Rows<'_>,
    using: Usage,
    out: &mut [T],
) -> Result<()> {
    rows.check(policy.len())?;
    let by_token = level == Level::Token;
    if by_token {
        same_length("out", out.len(), policy.len(), "`policy`")?;
    } else {
        same_length("out", out.len(), rows.count(), "the rows of `policy`")?;
    }
    let columns = Columns {
        arrays: [policy, old],
        mask: rows.mask(),
    };
    let counted = rows.counted();
    let is_parallel = policy.len() >= PARALLEL_SLOTS;
    if by_token {
        parallel::for_each(is_parallel, Chunks::new(&counted, out), |chunk| {
            dispatch(Tokens {
                columns,
                chunk,
                using,
            });
        });
        return Ok(());
    }
    let mut rest = out;
    let chunks = Chunks::new(&counted, &mut [] as &mut [T]).map(|chunk| {
        let (out, behind) = std::mem::take(&mut rest).split_at_mut(chunk.rows.len());
        rest = behind;
        (chunk.rows, out)
    });
    parallel::for_each(is_parallel, chunks, |(rows, out)| {
        dispatch(Sequences {
            columns,
            rows,
            using,
            is_mean: level == Level::SequenceMean,
            out,
        });
    });
    Ok(())
}

/// The result of a ratio.
#[inline(always)]
fn used<S: Simd>(s: S, using: Usage, log: S::F64, ratio: S::F64) -> S::F64 {
    let (low, high) = (s.f64(using.low), s.f64(using.high));
    let ratio = match using.correction {
        None => ratio,
        Some(Correction::Truncated) => ratio.min(high).max(low),
        Some(Correction::Masked) => {
            S::F64::select(low.le(ratio) & ratio.le(high), ratio, s.f64(0.0))
        }
    };
    S::F64::select(log.is_nan(), s.f64(NAN_64), ratio)
}

/// Ratios of tokens.
struct Tokens<'a, T> {
    columns: Columns<'a, T, 2>,
    chunk: Chunk<'a, T>,
    using: Usage,
}

impl<T: Data> Kernel for Tokens<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut out = self.chunk.out;
        for &CountedRow { row, .. } in self.chunk.rows {
            let (to, rest) = out.split_at_mut(row.end - row.start);
            out = rest;
            let (to, padding) = to.split_at_mut(row.tokens_end - row.start);
            padding.fill(T::default());
            let (groups, rest) = self.columns.groups(row);
            let (to, to_rest) = to.as_chunks_mut::<F64_LANES>();
            let mut last = [T::default(); F64_LANES];
            let pieces = [
                (groups, to),
                (rest.groups(), std::slice::from_mut(&mut last)),
            ];
            for (groups, to) in pieces {
                for (group, to) in to.iter_mut().enumerate().take(groups.len()) {
                    let bits = groups.bits(group);
                    let d = difference::<T, S>(s, &groups, group, bits, self.using.nan_is_none);
                    let ratio = used(s, self.using, d.high, T::exp(s, d));
                    let ratio = S::F64::select(s.mask64(bits), ratio, s.f64(0.0));
                    T::store(s, ratio, to);
                }
            }
            to_rest.copy_from_slice(&last[..to_rest.len()]);
        }
    }
}

/// Ratios of sequences.
struct Sequences<'a, T> {
    columns: Columns<'a, T, 2>,
    rows: &'a [CountedRow],
    using: Usage,
    is_mean: bool,
    out: &'a mut [T],
}

impl<T: Float> Kernel for Sequences<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (counted, out) in self.rows.iter().zip(self.out) {
            let sum = row_sum::<T, S>(s, &self.columns, counted.row, self.using.nan_is_none);
            let log = if self.is_mean {
                sum.over(counted.tokens.max(1))
            } else {
                sum
            };
            let ratio = used(s, self.using, s.f64(log.high), s.f64(log.exp(s)));
            *out = T::narrow(ratio.array()[0]);
        }
    }
}
