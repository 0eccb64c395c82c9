//! The policy losses of GRPO and its relatives, each with its gradient, in one pass.
//!
//! A step's loss is Σᵢ aᵢ Σₜ (w l + β KL), aᵢ the weight of the row's tokens under the algorithm's aggregation. With
//! r = exp(policy − old) of a token, its geometric mean over the row (the mean ratio) or its product:
//!
//! l and aᵢ are the algorithm's: see [`Algorithm`]; their formulas are those of docs/definitions.md, "Policy losses by
//! name".
//!
//! A loss of the whole row is repeated on its tokens. A clip acts only strictly outside its bound. Sources: see
//! [`Algorithm`]; δ is that of INTELLECT-2 (arXiv 2505.07291).

mod aggregation;
mod algorithm;
mod clip;
mod convention;
mod divergence;
mod facts;
mod metrics;
mod parameters;
mod pass;
mod row_sums;
mod step;
mod surrogate;

pub use crate::kl::KlRatio;
pub use algorithm::{Algorithm, Convention};
pub use metrics::Metrics;
pub use parameters::{CispoBound, DapoDenominator};
pub use step::{Signal, Step};

use crate::chunks::{Chunks, Columns, count_chunks};
use crate::error::same_length;
use crate::isa::dispatch;
use crate::rows::{CountedRow, Rows};
use crate::{Error, Float, Result, parallel};
use aggregation::row_weights;
use convention::check_unread;
use divergence::{ANY_KL, Divergence, NO_KL, PLAIN_K3};
use metrics::Tally;
use parameters::not_negative;
use pass::{Batch, Pass};
use step::{check_row_signals, check_signal, check_slots};
use surrogate::Surrogate;

/// The fewest slots for which threads are used: with fewer, waking them costs more than they save.
const PARALLEL_SLOTS: usize = 24_576;

/// A loss and its metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// To be minimised; computed and kept in `f64`.
    pub value: f64,
    /// For the log.
    pub metrics: Metrics,
}

/// Writes ∂loss/∂policy to `gradient` (+0 where no token is) and returns the loss.
///
/// Scalars are rounded to the data's type first. The gradient's error is at most k · 2u (|policy part| + |KL part|), the
/// loss's k · 2u Σ|terms|/denominator, k = 4 for `f32` and 8 for `f64`, u the unit roundoff. An overflowing ratio is +inf,
/// and harmless where A w is 0 or a clip holds it; sums of +inf and −inf are NaN.
///
/// # Errors
/// A parameter that is missing, out of range or not read by the algorithm; lengths that do not match; no rows; a value of
/// a token that is not finite (`gradient` then holds nothing of use).
pub fn policy_loss<T: Float>(
    step: &Step<'_, T>,
    convention: &Convention<'_>,
    gradient: &mut [T],
) -> Result<Loss> {
    let slots = step.policy.len();
    let rows = step.rows;
    rows.check(slots)?;
    if rows.count() == 0 || (slots == 0 && matches!(rows, Rows::Padded { .. })) {
        return Err(Error::Empty { argument: "policy" });
    }
    same_length("gradient", gradient.len(), slots, "`policy`")?;
    for (name, array) in [("old", step.old), ("reference", step.reference)] {
        if let Some(array) = array {
            same_length(name, array.len(), slots, "`policy`")?;
        }
    }
    check_unread(convention)?;
    let algorithm = convention.algorithm;
    check_signal("advantages", step.advantages, step, algorithm)?;
    if let Some(weights) = step.weights {
        check_signal("weights", weights, step, algorithm)?;
    }
    let divergence = divergence::<T>(step, convention)?;
    let counted = rows.counted();
    let weights = row_weights(convention, &counted)?;
    check_row_signals(step, &counted)?;
    let call = Job {
        step,
        rows: &counted,
        row_weights: &weights,
        divergence,
        gradient,
    };
    let tally = algorithm.run::<T>(call, convention)?;
    if !tally.is_finite {
        check_slots(step, &counted, divergence.beta != 0.0)?; // else finite numbers overflowed
    }
    let facts = algorithm.facts();
    let [has_low, has_high, _] = facts.bounds;
    let bounds = [has_low, has_high, convention.delta.is_some()];
    let has_kl = divergence.beta != 0.0;
    Ok(Loss {
        value: tally.loss(),
        metrics: tally.metrics(bounds, facts.is_truncated, has_kl),
    })
}

/// What every surrogate is called with.
struct Job<'a, T> {
    step: &'a Step<'a, T>,
    rows: &'a [CountedRow],
    row_weights: &'a [f64],
    divergence: Divergence,
    gradient: &'a mut [T],
}

impl<T: Float> surrogate::Call for Job<'_, T> {
    type Output = Tally;

    fn run<P: Surrogate>(self, surrogate: P) -> Tally {
        let step = self.step;
        let batch = Batch {
            columns: Columns {
                arrays: [
                    step.policy,
                    step.old.unwrap_or(step.policy),
                    step.reference.unwrap_or(&[]),
                    step.advantages.slots().unwrap_or(&[]),
                    step.weights.and_then(Signal::slots).unwrap_or(&[]),
                ],
                mask: step.rows.mask(),
            },
            advantages: step.advantages,
            weights: step.weights,
            row_weights: self.row_weights,
            surrogate,
            divergence: self.divergence,
        };
        let is_slots = |signal: Signal<'_, T>| signal.slots().is_some();
        let has_slots = is_slots(step.advantages) || step.weights.is_some_and(is_slots);
        let chunks = match (self.divergence.kind(), has_slots) {
            (NO_KL, false) => chunks::<T, P, NO_KL, false>,
            (NO_KL, true) => chunks::<T, P, NO_KL, true>,
            (PLAIN_K3, false) => chunks::<T, P, PLAIN_K3, false>,
            (_, false) => chunks::<T, P, ANY_KL, false>,
            (_, true) => chunks::<T, P, ANY_KL, true>,
        };
        chunks(&batch, self.rows, self.gradient)
    }
}

fn chunks<T: Float, P: Surrogate, const KL: u8, const SLOTS: bool>(
    batch: &Batch<'_, T, P>,
    rows: &[CountedRow],
    gradient: &mut [T],
) -> Tally {
    let is_parallel = gradient.len() >= PARALLEL_SLOTS;
    let mut tallies = vec![Tally::default(); count_chunks(rows)];
    let chunks = Chunks::new(rows, gradient).zip(&mut tallies);
    parallel::for_each(is_parallel, chunks, |(chunk, tally)| {
        *tally = dispatch(Pass::<T, P, KL, SLOTS> { batch, chunk });
    });
    let mut all = Tally::default();
    for tally in &tallies {
        all.merge(tally);
    }
    all
}

fn divergence<T: Float>(step: &Step<'_, T>, convention: &Convention<'_>) -> Result<Divergence> {
    let beta = not_negative::<T>(convention.algorithm.name(), "beta", Some(convention.beta))?;
    if beta != 0.0 && !convention.algorithm.facts().has_kl {
        return Err(Error::NoKl {
            found: beta,
            algorithm: convention.algorithm.name(),
        });
    }
    if beta != 0.0 && step.reference.is_none() {
        return Err(Error::NoReference { beta });
    }
    Ok(Divergence {
        beta,
        estimator: convention.kl_estimator,
        ratio: convention.kl_ratio,
        row: (1.0, 0.0),
    })
}
