//! Several reward functions: each is normalised within its group, then their weighted sum within the batch.

use super::{
    Baseline, Convention, EpsMode, Scale, check_ddof, check_eps, check_size, divides,
    group_advantages,
};
use crate::double::Sum;
use crate::error::same_length;
use crate::{Error, Float, Result};

/// The divisors of the two stages: each is std + eps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stages {
    /// 0 or 1, of the group's std.
    pub group_ddof: i64,
    /// Added to the group's std; finite and at least 0.
    pub group_eps: f64,
    /// 0 or 1, of the batch's std.
    pub batch_ddof: i64,
    /// Added to the batch's std; finite and at least 0.
    pub batch_eps: f64,
}

/// Writes the two-stage advantage of every row to `out`.
///
/// `rewards` is (B, F) in C order, F = `weights.len()` reward functions for each of the B rows. Every column becomes
/// `z = (R − mean_g) / (std_g + group_eps)` in its group, and with `y_i = Σ_f w_f·z_if` the advantage is
/// `(y_i − mean) / (std + batch_eps)` over the batch. A NaN reward counts 0 in its row's sum; a row is unscored, with
/// advantage 0, only if all its rewards are NaN. Sums that are the same in every scored row give exactly 0.
///
/// Both stages run in `f64`: `|error| ≤ k·2u·max_i Σ_f |w_f|·S_if / (std + batch_eps)`, S the scale of the first stage.
/// Source: GDPO (arXiv 2601.05242).
///
/// # Errors
/// No rewards or no weights; a weight or a reward that is infinite, a weight that is NaN, a weighted sum that overflows;
/// a group size below 1 or one that does not divide B; a `ddof` other than 0 or 1; an eps that is negative or not
/// finite in the data's type.
pub fn normalise_then_sum<T: Float>(
    rewards: &[T],
    weights: &[T],
    group_size: i64,
    stages: &Stages,
    out: &mut [T],
) -> Result<()> {
    let size = check(rewards, weights, group_size, stages)?;
    let functions = weights.len();
    let rows = rewards.len() / functions;
    same_length("out", out.len(), rows, "the rows of `rewards`")?;
    let eps = |eps: f64| T::narrow(eps).widen();
    let first = convention(stages.group_ddof, eps(stages.group_eps));
    let second = convention(stages.batch_ddof, eps(stages.batch_eps));
    let mut sums = vec![Sum::default(); rows];
    let (mut column, mut scores) = (vec![0.0; rows], vec![0.0; rows]);
    for (function, weight) in weights.iter().enumerate() {
        for (to, row) in column.iter_mut().zip(rewards.chunks_exact(functions)) {
            *to = row[function].widen();
        }
        group_advantages(&column, size, &first, &mut scores)
            .map_err(|error| in_column(error, function))?;
        let weight = weight.widen();
        for (sum, &score) in sums.iter_mut().zip(&scores) {
            sum.add(weight * score);
        }
    }
    for (row, (to, sum)) in column.iter_mut().zip(&sums).enumerate() {
        let row_rewards = &rewards[row * functions..(row + 1) * functions];
        let found = sum.value();
        *to = if row_rewards.iter().all(|r| r.widen().is_nan()) {
            f64::NAN // unscored
        } else if found.is_finite() {
            found
        } else {
            return Err(Error::WeightedSum { row, found });
        };
    }
    group_advantages(&column, rows as i64, &second, &mut scores)?;
    for (out, score) in out.iter_mut().zip(scores) {
        *out = T::narrow(score);
    }
    Ok(())
}

fn convention(ddof: i64, eps: f64) -> Convention {
    Convention {
        scale: Scale::Group,
        ddof,
        eps,
        eps_mode: EpsMode::Add,
        baseline: Baseline::Mean,
    }
}

/// An infinite reward's place in the matrix.
fn in_column(error: Error, column: usize) -> Error {
    match error {
        Error::InfiniteReward { index, found } => Error::InfiniteRewardOf {
            row: index,
            column,
            found,
        },
        other => other,
    }
}

fn check<T: Float>(rewards: &[T], weights: &[T], group_size: i64, stages: &Stages) -> Result<i64> {
    check_eps::<T>("group_eps", stages.group_eps)?;
    check_eps::<T>("batch_eps", stages.batch_eps)?;
    check_ddof("group_ddof", stages.group_ddof)?;
    check_ddof("batch_ddof", stages.batch_ddof)?;
    if weights.is_empty() {
        return Err(Error::Empty {
            argument: "weights",
        });
    }
    let found = weights.iter().map(|w| w.widen()).enumerate();
    if let Some((index, found)) = found.into_iter().find(|(_, w)| !w.is_finite()) {
        return Err(Error::Weight { index, found });
    }
    let size = check_size(rewards.len(), group_size)?;
    if !rewards.len().is_multiple_of(weights.len()) {
        return Err(Error::LengthMismatch {
            argument: "weights",
            found: weights.len(),
            expected: rewards.len(),
            like: "a divisor of the elements of `rewards`",
        });
    }
    divides(rewards.len() / weights.len(), size)?;
    Ok(group_size)
}
