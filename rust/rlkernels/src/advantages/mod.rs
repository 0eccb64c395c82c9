//! Group-relative advantages, and generalised advantage estimation.
//!
//! Sources: DeepSeekMath (arXiv 2402.03300, eq. 3: group z-score), Dr. GRPO (arXiv 2503.20783: no divisor),
//! RLOO (arXiv 2402.14740: leave-one-out baseline), GDPO (arXiv 2601.05242: normalise, then sum).

mod compensated;
mod convention;
mod gae;
mod groups;
mod multi_reward;
mod plan;
mod transposed;

pub use convention::{Baseline, Convention, EpsMode, Scale};
pub use gae::{Episodes, gae};
pub use multi_reward::{Stages, normalise_then_sum};

use crate::error::at_least;
use crate::isa::{F64_LANES, dispatch};
use crate::parallel::for_each;
use crate::{Error, Float, Result};
use groups::Groups;
use plan::Plan;

/// The fewest rewards for which threads are used. An estimate: the work should take several times as long as waking them.
const PARALLEL: usize = 1 << 18;
/// About the size of a chunk, the unit of work of a thread.
const CHUNK: usize = 1 << 16;

/// Writes `A_i = (R_i − baseline_i) / divisor` to `out`, one element per reward.
///
/// `rewards` (B) is prompt-major: `group_size` rewards of one prompt after the other. A NaN reward means "not scored":
/// it is left out of every mean and standard deviation, and its own advantage is 0. A group whose scored rewards are all
/// equal (one scored member included) gives exactly 0, by comparison and not by a threshold. A divisor is never 0: a
/// group that is not constant has a positive standard deviation, so no NaN arises even with `eps` 0.
///
/// `|error| ≤ k·2u·max|R_g| / divisor`, k = 4 for `f32` (computed in `f64`) and 8 for `f64`; derived in `groups.rs`.
/// After an error `out` holds anything.
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
    let size = check(rewards, group_size, convention)?;
    crate::error::same_length("out", out.len(), rewards.len(), "`rewards`")?;
    let eps = T::narrow(convention.eps).widen();
    let batch = if convention.scale == Scale::Batch {
        Some(dispatch(compensated::Batch {
            rewards,
            eps,
            convention,
        })?)
    } else {
        None
    };
    let plan = Plan::new(size, eps, convention, batch);
    if rewards.len() < PARALLEL {
        return Groups {
            plan: &plan,
            rewards,
            start: 0,
            out,
        }
        .compute();
    }
    // whole blocks of eight groups: the boundaries of chunks change no group's path
    let chunk = size * F64_LANES * (CHUNK / (size * F64_LANES)).max(1);
    let mut results = vec![Ok(()); rewards.len().div_ceil(chunk)];
    let chunks = rewards
        .chunks(chunk)
        .zip(out.chunks_mut(chunk))
        .zip(&mut results)
        .enumerate();
    for_each(true, chunks, |(number, ((rewards, out), result))| {
        *result = Groups {
            plan: &plan,
            rewards,
            start: number * chunk,
            out,
        }
        .compute();
    });
    results.into_iter().collect()
}

fn check<T: Float>(rewards: &[T], group_size: i64, convention: &Convention) -> Result<usize> {
    check_eps::<T>("eps", convention.eps)?;
    check_ddof("ddof", convention.ddof)?;
    let size = check_size(rewards.len(), group_size)?;
    if size < 2 && convention.baseline == Baseline::LeaveOneOut {
        return Err(Error::NoOthers { group_size: size });
    }
    divides(rewards.len(), size)
}

fn check_eps<T: Float>(argument: &'static str, found: f64) -> Result<()> {
    let eps = T::narrow(found).widen();
    if found >= 0.0 && eps.is_finite() {
        return Ok(());
    }
    let overflows = found.is_finite() && found > 0.0;
    Err(Error::Eps {
        argument,
        found: if overflows { eps } else { found },
        dtype: T::NAME,
    })
}

fn check_ddof(argument: &'static str, found: i64) -> Result<()> {
    match found {
        0 | 1 => Ok(()),
        _ => Err(Error::Ddof { argument, found }),
    }
}

fn check_size(rewards: usize, group_size: i64) -> Result<usize> {
    at_least("group_size", group_size, 1)?;
    if rewards == 0 {
        return Err(Error::Empty {
            argument: "rewards",
        });
    }
    Ok(usize::try_from(group_size).unwrap_or(usize::MAX))
}

fn divides(length: usize, group_size: usize) -> Result<usize> {
    if length.is_multiple_of(group_size) {
        return Ok(group_size);
    }
    Err(Error::NotDivisible { length, group_size })
}
