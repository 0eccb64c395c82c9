//! The weight of tokens in the loss of a step: every aggregation is a weighted sum of token losses.

use super::algorithm::Convention;
use super::facts::Aggregation;
use super::parameters::{DapoDenominator, given, positive};
use crate::error::at_least;
use crate::rows::CountedRow;
use crate::{Error, Result};

/// The weight of every row's tokens; what it is for rows without tokens does not matter.
///
/// 1 / (B nᵢ) for the mean over rows of the mean over a row (a row's own loss repeated on its tokens is then itself),
/// 1 / B for LUSPO, 1 / (blocks × tokens of the row's block) for DAPO, CISPO and bnpo-trl, 1 / (B `L_max`) for Dr. GRPO.
pub(super) fn row_weights(convention: &Convention<'_>, rows: &[CountedRow]) -> Result<Vec<f64>> {
    let count = rows.len();
    let same = |denominator: f64| Ok(vec![1.0 / denominator; count]);
    let algorithm = convention.algorithm.name();
    match convention.algorithm.facts().aggregation {
        Aggregation::Constant => {
            let most = whole(convention, "max_length", convention.max_length)?;
            same(count as f64 * most as f64)
        }
        Aggregation::RowSum => same(count as f64),
        Aggregation::MicroBatches => {
            let sizes = given(algorithm, "micro_batches", convention.micro_batches)?;
            let sum: i128 = sizes.iter().map(|&size| i128::from(size)).sum();
            if sum != count as i128 || sizes.iter().any(|&size| size < 1) {
                return Err(Error::Blocks {
                    found: sizes.to_vec(),
                    rows: count,
                });
            }
            Ok(block_weights(rows, sizes.len(), sizes.iter().copied()))
        }
        Aggregation::Tokens => {
            match given(algorithm, "dapo_denominator", convention.dapo_denominator)? {
                DapoDenominator::Global => Ok(block_weights(rows, 1, [count as i64])),
                DapoDenominator::Trl => same(positive::<f64>(
                    algorithm,
                    "tokens_in_step",
                    convention.tokens_in_step,
                )?),
                DapoDenominator::Group => {
                    let size = whole(convention, "group_size", convention.group_size)?;
                    let groups = count / size as usize;
                    if groups * size as usize != count {
                        return Err(Error::GroupSize {
                            found: size,
                            rows: count,
                        });
                    }
                    let sizes = std::iter::repeat_n(size, groups);
                    Ok(block_weights(rows, groups, sizes))
                }
            }
        }
        Aggregation::RowMean => Ok(rows
            .iter()
            .map(|row| 1.0 / (count as f64 * row.tokens as f64))
            .collect()),
    }
}

/// 1 / (blocks × tokens of the row's block); the products are exact below 2^53.
fn block_weights(
    rows: &[CountedRow],
    blocks: usize,
    sizes: impl IntoIterator<Item = i64>,
) -> Vec<f64> {
    let mut weights = Vec::with_capacity(rows.len());
    let mut rest = rows;
    for size in sizes {
        let (block, behind) = rest.split_at(size as usize);
        let tokens: usize = block.iter().map(|row| row.tokens).sum();
        let weight = 1.0 / (blocks as f64 * tokens as f64);
        weights.extend(std::iter::repeat_n(weight, block.len()));
        rest = behind;
    }
    weights
}

/// A whole number that must be given and be at least 1.
fn whole(convention: &Convention<'_>, argument: &'static str, value: Option<i64>) -> Result<i64> {
    let found = given(convention.algorithm.name(), argument, value)?;
    at_least(argument, found, 1)?;
    Ok(found)
}
