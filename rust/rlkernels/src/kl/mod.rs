//! KL(policy ‖ reference): Schulman's estimators from samples of the policy, and the sum over the whole vocabulary.
//!
//! Source: J. Schulman, "Approximating KL Divergence" (2020), with d = reference − policy:
//! k1 = −d, k2 = d²/2, k3 = exp(d) − 1 − d.

mod choice;
mod full;
mod samples;
mod sequences;
mod terms;
mod tokens;

pub use choice::{Estimator, KlRatio, Reduction};
pub use full::full_kl;
pub use samples::Samples;

use crate::error::same_length;
use crate::parallel::for_each;
use crate::rows::{RowIter, Rows, Valid};
use crate::{Float, Result};
use samples::{CHUNK_SLOTS, PARALLEL_SLOTS};
use terms::Terms;

/// Writes the estimate of every token to `out`; slots that are no tokens become exactly 0, whatever they held.
///
/// The samples and `out` have one element per slot of `rows`. `ratio` multiplies every estimate by exp(policy − old), of
/// the token itself or, with the mean in the exponent, of its sequence. The relative error is at most 8u for `f32` and
/// 16u for `f64` (u the unit roundoff), results below the normal range aside; for a sequence's ratio it is that times
/// max(1, |log ratio|). An overflow gives +inf (k1: with its sign). A NaN on a token gives the positive quiet NaN; so do
/// two equal infinities, whose difference means nothing, and an estimate of 0 under an infinite ratio. If only the policy
/// is −inf then k1 = −inf and k2 = k3 = +inf; if only the reference is, all three are +inf.
///
/// # Errors
/// Lengths that do not match; see [`Rows::check`].
pub fn token_kl<T: Float>(
    samples: &Samples<'_, T>,
    estimator: Estimator,
    ratio: KlRatio,
    rows: &Rows<'_>,
    out: &mut [T],
) -> Result<()> {
    samples.check(rows)?;
    same_length("out", out.len(), samples.policy.len(), "`policy`")?;
    let terms = Terms::new(samples, ratio, rows);
    let has_prefixes = matches!(
        rows,
        Rows::Padded {
            valid: Valid::Prefix(_),
            ..
        }
    );
    let rows = if terms.needs_sequences() || has_prefixes {
        rows.sequences()
    } else {
        RowIter::cut(samples.policy.len(), CHUNK_SLOTS) // estimates do not depend on sequences
    };
    if samples.policy.len() < PARALLEL_SLOTS {
        tokens::each(estimator, terms, rows, out);
        return Ok(());
    }
    let mut out = out;
    let chunks: Vec<_> = rows
        .chunks(CHUNK_SLOTS)
        .map(|chunk| {
            let slots = chunk.slots();
            let (here, rest) = std::mem::take(&mut out).split_at_mut(slots);
            out = rest;
            (chunk, here)
        })
        .collect();
    for_each(true, chunks.into_iter(), |(chunk, out)| {
        tokens::each(estimator, terms, chunk, out);
    });
    Ok(())
}

/// Writes one value per sequence of `rows` to `out`: the sum or the mean of its tokens' estimates.
///
/// As [`token_kl`]; the estimates are not rounded to `f32` before they are added, sums of `f32` data run in `f64` and
/// sums of `f64` data are compensated, both in one order that no layout changes. Slots that are no tokens are never
/// used; a sequence without tokens gives 0. The error is measured by the sum of the absolute estimates.
///
/// # Errors
/// Lengths that do not match; see [`Rows::check`].
pub fn sequence_kl<T: Float>(
    samples: &Samples<'_, T>,
    estimator: Estimator,
    ratio: KlRatio,
    rows: &Rows<'_>,
    reduction: Reduction,
    out: &mut [T],
) -> Result<()> {
    samples.check(rows)?;
    same_length("out", out.len(), rows.count(), "the rows of `policy`")?;
    let terms = Terms::new(samples, ratio, rows);
    if samples.policy.len() < PARALLEL_SLOTS {
        sequences::each(estimator, terms, rows.sequences(), reduction, out);
        return Ok(());
    }
    let mut out = out;
    let chunks: Vec<_> = rows
        .sequences()
        .chunks(CHUNK_SLOTS)
        .map(|chunk| {
            let (here, rest) = std::mem::take(&mut out).split_at_mut(chunk.left());
            out = rest;
            (chunk, here)
        })
        .collect();
    for_each(true, chunks.into_iter(), |(chunk, out)| {
        sequences::each(estimator, terms, chunk, reduction, out);
    });
    Ok(())
}
