//! KL(policy ‖ reference): Schulman's estimators from samples of the policy, and the sum over the whole vocabulary.
//!
//! Source: J. Schulman, "Approximating KL Divergence" (2020), with d = reference − policy:
//! k1 = −d, k2 = d²/2, k3 = exp(d) − 1 − d.

mod choice;
mod full;
mod sequences;
mod terms;
mod tokens;

pub use choice::{Estimator, KlRatio, Reduction};
pub use full::full_kl;

use crate::parallel::for_each;
use crate::rows::{RowIter, Rows, Valid, same_length};
use crate::{Float, Result};
use terms::Terms;

/// Slots from which a call is shared out among threads, and about the size of one part.
///
/// Measured on two x86-64 cores: waking the pool costs 5 to 20 µs, and one core needs 20 µs for 2^17 slots of `f32`.
const PARALLEL: usize = 1 << 17;
const PART: usize = 1 << 15;

/// What the estimates are made of; all slices have one element per slot.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'a, T> {
    /// Log-probabilities under the policy, in nats.
    pub policy: &'a [T],
    /// Log-probabilities under the reference.
    pub reference: &'a [T],
    /// Log-probabilities under the policy that drew the tokens; `None` where that is `policy` itself: every ratio is 1.
    pub old: Option<&'a [T]>,
}

impl<'a, T> Samples<'a, T> {
    /// Tokens drawn from `policy` itself.
    #[must_use]
    pub fn on_policy(policy: &'a [T], reference: &'a [T]) -> Self {
        Self {
            policy,
            reference,
            old: None,
        }
    }

    fn check(&self, rows: &Rows<'_>) -> Result<()> {
        let slots = self.policy.len();
        same_length("reference", self.reference.len(), slots, "`policy`")?;
        if let Some(old) = self.old {
            same_length("old", old.len(), slots, "`policy`")?;
        }
        rows.check(slots)
    }
}

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
        rows.iter()
    } else {
        RowIter::cut(samples.policy.len(), PART) // no sequence matters
    };
    if samples.policy.len() < PARALLEL {
        tokens::each(estimator, terms, rows, out);
        return Ok(());
    }
    let mut out = out;
    let parts: Vec<_> = rows
        .parts(PART)
        .map(|part| {
            let slots = part.slots();
            let (here, behind) = std::mem::take(&mut out).split_at_mut(slots);
            out = behind;
            (part, here)
        })
        .collect();
    for_each(true, parts.into_iter(), |(part, out)| {
        tokens::each(estimator, terms, part, out);
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
    if samples.policy.len() < PARALLEL {
        sequences::each(estimator, terms, rows.iter(), reduction, out);
        return Ok(());
    }
    let mut out = out;
    let parts: Vec<_> = rows
        .iter()
        .parts(PART)
        .map(|part| {
            let (here, behind) = std::mem::take(&mut out).split_at_mut(part.count());
            out = behind;
            (part, here)
        })
        .collect();
    for_each(true, parts.into_iter(), |(part, out)| {
        sequences::each(estimator, terms, part, reduction, out);
    });
    Ok(())
}

/// Runs a kernel that is generic over the estimator's number.
macro_rules! by_estimator {
    ($estimator:expr, $kernel:ident { $($field:ident),* }) => {
        match $estimator {
            $crate::kl::Estimator::K1 => $crate::isa::dispatch($kernel::<_, 1> { $($field),* }),
            $crate::kl::Estimator::K2 => $crate::isa::dispatch($kernel::<_, 2> { $($field),* }),
            $crate::kl::Estimator::K3 => $crate::isa::dispatch($kernel::<_, 3> { $($field),* }),
        }
    };
}
pub(crate) use by_estimator;
