//! How far the policy has moved from the policy that sampled: ratios, corrections and their statistics.
//!
//! With D = policy − old of a token, a ratio is exp(D) of the token (PPO, arXiv 1707.06347), of the mean of D over a
//! sequence (GSPO, arXiv 2507.18071, eq. 7) or of its sum (RLOO, arXiv 2402.14740).

mod moments;
mod statistics;

pub use statistics::{Moments, Statistics, ratio_statistics};

use std::str::FromStr;

use crate::data::{Data, Pair, Sums};
use crate::isa::{F64_LANES, Kernel, Lanes, Simd, dispatch};
use crate::math::NAN_64;
use crate::rows::{Rows, same_length};
use crate::walk::{Columns, Groups, Part, Parts, Place, mask_of, places};
use crate::{Error, Float, Result, parallel};

/// Slots from which threads are used: below, waking them costs more than they save.
const PARALLEL_SLOTS: usize = 32_768;

const POLICY: usize = 0;
const OLD: usize = 1;

/// Whose ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// exp(D) of every token.
    Token,
    /// exp of the mean of D over a sequence.
    SequenceMean,
    /// exp of the sum of D over a sequence.
    SequenceSum,
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "token" => Ok(Self::Token),
            "seq_mean" => Ok(Self::SequenceMean),
            "seq_sum" => Ok(Self::SequenceSum),
            _ => Err(Error::UnknownChoice {
                argument: "level",
                found: name.into(),
                legal: "\"token\", \"seq_mean\", \"seq_sum\"",
            }),
        }
    }
}

/// What becomes of a ratio outside its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// Truncated importance sampling: clamped to the bounds.
    Truncated,
    /// Masked importance sampling: 0 outside the bounds, which belong to the inside.
    Masked,
}

impl FromStr for Correction {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "tis" => Ok(Self::Truncated),
            "mis" => Ok(Self::Masked),
            _ => Err(Error::UnknownChoice {
                argument: "correction",
                found: name.into(),
                legal: "\"tis\", \"mis\"",
            }),
        }
    }
}

/// What is done with a ratio once it is there.
#[derive(Clone, Copy)]
struct Use {
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
    let plain = Use {
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
    /// What becomes of a ratio outside its bounds.
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
    let bounded = Use {
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
    using: Use,
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
        mask: mask_of(rows),
    };
    let places = places(rows);
    let is_parallel = policy.len() >= PARALLEL_SLOTS;
    if by_token {
        parallel::for_each(is_parallel, Parts::new(&places, out), |part| {
            dispatch(Tokens {
                columns,
                part,
                using,
            });
        });
        return Ok(());
    }
    let mut rest = out;
    let parts = Parts::new(&places, &mut [] as &mut [T]).map(|part| {
        let (out, behind) = std::mem::take(&mut rest).split_at_mut(part.places.len());
        rest = behind;
        (part.places, out)
    });
    parallel::for_each(is_parallel, parts, |(places, out)| {
        dispatch(Sequences {
            columns,
            places,
            using,
            is_mean: level == Level::SequenceMean,
            out,
        });
    });
    Ok(())
}

/// The differences of eight slots, 0 where no token is.
#[inline(always)]
fn difference<T: Data, S: Simd, const N: usize>(
    s: S,
    groups: &Groups<'_, T, N>,
    group: usize,
    bits: u8,
    nan_is_none: bool,
) -> Pair<S::F64> {
    let zero = s.f64(0.0);
    let mut valid = s.mask64(bits);
    let (policy, old) = (groups.load(s, POLICY, group), groups.load(s, OLD, group));
    if nan_is_none {
        valid = valid & old.eq(old);
    }
    T::minus(
        s,
        S::F64::select(valid, policy, zero),
        S::F64::select(valid, old, zero),
    )
}

/// A ratio as it is used.
#[inline(always)]
fn used<S: Simd>(s: S, using: Use, log: S::F64, ratio: S::F64) -> S::F64 {
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
    part: Part<'a, T>,
    using: Use,
}

impl<T: Data> Kernel for Tokens<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut out = self.part.out;
        for place in self.part.places {
            let (to, rest) = out.split_at_mut(place.end - place.start);
            out = rest;
            let slots = place.valid_end - place.start;
            let (to, behind) = to.split_at_mut(slots);
            behind.fill(T::default());
            let (groups, rest) = self.columns.cut(place.start, place.valid_end).groups(slots);
            let (to, to_rest) = to.as_chunks_mut::<F64_LANES>();
            let mut last = [T::default(); F64_LANES];
            let pieces = [
                (groups, to),
                (rest.groups(), std::slice::from_mut(&mut last)),
            ];
            for (groups, to) in pieces {
                for (group, to) in to.iter_mut().enumerate().take(groups.len()) {
                    let bits = groups.bits(group);
                    let d = difference::<T, S, 2>(s, &groups, group, bits, self.using.nan_is_none);
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
    places: &'a [Place],
    using: Use,
    is_mean: bool,
    out: &'a mut [T],
}

impl<T: Float> Kernel for Sequences<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (place, out) in self.places.iter().zip(self.out) {
            let sum = row_sum::<T, S, 2>(s, &self.columns, place, self.using.nan_is_none);
            let log = if self.is_mean {
                sum.over(place.tokens.max(1))
            } else {
                sum
            };
            let ratio = used(s, self.using, s.f64(log.high), s.f64(log.exp(s)));
            *out = T::narrow(ratio.array()[0]);
        }
    }
}

/// The sum of a row's differences.
#[inline(always)]
fn row_sum<T: Data, S: Simd, const N: usize>(
    s: S,
    columns: &Columns<'_, T, N>,
    place: &Place,
    nan_is_none: bool,
) -> Pair<f64> {
    let mut sums = Sums::new(s);
    let slots = place.valid_end - place.start;
    let (groups, rest) = columns.cut(place.start, place.valid_end).groups(slots);
    for groups in [groups, rest.groups()] {
        for group in 0..groups.len() {
            let bits = groups.bits(group);
            sums.add_pair::<T>(difference::<T, S, N>(s, &groups, group, bits, nan_is_none));
        }
    }
    sums.total::<T>()
}
