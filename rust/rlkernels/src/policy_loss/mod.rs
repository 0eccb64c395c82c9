//! The policy losses of GRPO and its relatives, each with its gradient, in one pass.
//!
//! A step's loss is Σᵢ aᵢ Σₜ (w l + β KL), aᵢ the weight of the row's tokens under the algorithm's aggregation. With
//! r = exp(policy − old) of a token, its geometric mean over the row (the mean ratio) or its product:
//!
//! | algorithms | l | row's weight aᵢ |
//! |---|---|---|
//! | GRPO, bnpo-trl, DAPO, Dr. GRPO | −min(min(r, δ) A, clip(r, 1 − `ε_low`, 1 + `ε_high`) A) of the token's r | 1/(B nᵢ), 1/(M tokens of the micro-batch), DAPO's denominator, 1/(B `L_max`) |
//! | GSPO, LUSPO | the same of the row's mean ratio | 1/(B nᵢ), 1/B |
//! | GSPO-token | the same of stop(mean ratio) · exp(policy − stop(policy)) | 1/(B nᵢ) |
//! | RLOO | −r A of the row's product | 1/(B nᵢ) |
//! | CISPO | −stop(min(r, c)) A · policy of the token's r | as DAPO |
//! | SAPO | −(4/τ) σ(τ (r − 1)) A of the token's r | 1/(B nᵢ) |
//! | GMPO | −r A, r the mean ratio of differences held within [−`ε_low`, `ε_high`] on the side that A names | 1/(B nᵢ) |
//!
//! A loss of the whole row is repeated on its tokens. A clip acts only strictly outside its bound. Sources: see
//! [`Algorithm`]; δ is that of INTELLECT-2 (arXiv 2505.07291).

mod aggregation;
mod convention;
mod divergence;
mod metrics;
mod pass;
mod surrogate;

pub use convention::{Algorithm, CispoBound, Convention, DapoDenominator, KlRatio};
pub use metrics::Metrics;

use crate::isa::dispatch;
use crate::rows::{Rows, same_length};
use crate::walk::{Columns, Parts, Place, count_parts, mask_of, places};
use crate::{Error, Float, Result, parallel};
use aggregation::row_weights;
use divergence::Divergence;
use metrics::Tally;
use pass::{Batch, Pass};
use surrogate::{Bounds, Clip, Geometric, Soft, Surrogate, Truncated, Whole, bounds_of};

/// Slots from which threads are used: below, waking them costs more than they save.
const PARALLEL_SLOTS: usize = 24_576;

/// Constants of the gradient: one for every row, or one for every slot.
#[derive(Debug, Clone, Copy)]
pub enum Signal<'a, T> {
    /// One for every row.
    Rows(&'a [T]),
    /// One for every slot; what it holds where no token is, is never used.
    Slots(&'a [T]),
}

/// The arrays of a step; log-probabilities in nats, one for every slot of the layout.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a, T> {
    /// Of the policy being trained: the variable of the gradient.
    pub policy: &'a [T],
    /// Of the behaviour policy, constant; `None` for on-policy: every ratio is 1, its gradient alive.
    pub old: Option<&'a [T]>,
    /// Of the reference model; not read where β is 0.
    pub reference: Option<&'a [T]>,
    /// Advantages A.
    pub advantages: Signal<'a, T>,
    /// Off-policy weights w, constant; they multiply l and leave KL and denominators alone. `None` for 1.
    pub weights: Option<Signal<'a, T>>,
    /// Which slots are tokens. A row without tokens adds 0 and counts in B.
    pub rows: Rows<'a>,
}

/// A loss and what it tells besides.
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
    convention.without_strangers()?;
    let algorithm = convention.algorithm;
    check_signal("advantages", step.advantages, step, algorithm)?;
    if let Some(weights) = step.weights {
        check_signal("weights", weights, step, algorithm)?;
    }
    let divergence = divergence::<T>(step, convention)?;
    let places = places(&rows);
    let weights = row_weights(convention, &places)?;
    rows_are_finite(step, &places)?;
    let call = Call {
        step,
        places: &places,
        row_weights: &weights,
        divergence,
    };
    let tally = match algorithm {
        Algorithm::Grpo | Algorithm::Dapo | Algorithm::BnpoTrl | Algorithm::DrGrpo => {
            call.run(Clip(Bounds::new::<T>(convention)?), gradient)
        }
        Algorithm::Gspo | Algorithm::GspoToken | Algorithm::Luspo => {
            call.run(Whole::mean(Bounds::new::<T>(convention)?), gradient)
        }
        Algorithm::Rloo => call.run(Whole::product(), gradient),
        Algorithm::Cispo => call.run(Truncated::new::<T>(convention)?, gradient),
        Algorithm::Sapo => call.run(Soft::new::<T>(convention)?, gradient),
        Algorithm::Gmpo => call.run(Geometric::new::<T>(convention)?, gradient),
    };
    if !tally.is_finite {
        slots_are_finite(step, &places, divergence.beta != 0.0)?; // else finite numbers overflowed
    }
    let is_truncated = algorithm == Algorithm::Cispo;
    let has_kl = divergence.beta != 0.0;
    Ok(Loss {
        value: tally.loss(),
        metrics: tally.metrics(bounds_of(convention), is_truncated, has_kl),
    })
}

/// What every surrogate is called with.
struct Call<'a, T> {
    step: &'a Step<'a, T>,
    places: &'a [Place],
    row_weights: &'a [f64],
    divergence: Divergence,
}

impl<T: Float> Call<'_, T> {
    fn run<P: Surrogate>(&self, surrogate: P, gradient: &mut [T]) -> Tally {
        let step = self.step;
        let of_slots = |signal| match signal {
            Signal::Slots(values) => values,
            Signal::Rows(_) => &[],
        };
        let advantages = of_slots(step.advantages);
        let weights = step.weights.map_or(&[][..], of_slots);
        let batch = Batch {
            columns: Columns {
                arrays: [
                    step.policy,
                    step.old.unwrap_or(step.policy),
                    step.reference.unwrap_or(&[]),
                    advantages,
                    weights,
                ],
                mask: mask_of(&step.rows),
            },
            advantages: step.advantages,
            weights: step.weights,
            row_weights: self.row_weights,
            surrogate,
            divergence: self.divergence,
        };
        if self.divergence.beta == 0.0 {
            self.parts::<P, false>(&batch, gradient)
        } else {
            self.parts::<P, true>(&batch, gradient)
        }
    }

    fn parts<P: Surrogate, const KL: bool>(
        &self,
        batch: &Batch<'_, T, P>,
        gradient: &mut [T],
    ) -> Tally {
        let is_parallel = gradient.len() >= PARALLEL_SLOTS;
        let mut tallies = vec![Tally::default(); count_parts(self.places)];
        let parts = Parts::new(self.places, gradient).zip(&mut tallies);
        parallel::for_each(is_parallel, parts, |(part, tally)| {
            *tally = dispatch(Pass::<T, P, KL> { batch, part });
        });
        let mut all = Tally::default();
        for tally in &tallies {
            all.merge(tally);
        }
        all
    }
}

/// The row's constant; that of slots stands in their lanes.
#[inline]
fn row_value<T: Float>(signal: Signal<'_, T>, row: usize) -> f64 {
    match signal {
        Signal::Rows(values) => values[row].widen(),
        Signal::Slots(_) => 0.0,
    }
}

fn check_signal<T>(
    argument: &'static str,
    signal: Signal<'_, T>,
    step: &Step<'_, T>,
    algorithm: Algorithm,
) -> Result<()> {
    match signal {
        Signal::Rows(values) => {
            let rows = step.rows.count();
            same_length(argument, values.len(), rows, "the rows of `policy`")
        }
        Signal::Slots(_) if algorithm.is_by_row() => Err(Error::ByRow {
            argument,
            algorithm: algorithm.name(),
        }),
        Signal::Slots(values) => same_length(argument, values.len(), step.policy.len(), "`policy`"),
    }
}

fn divergence<T: Float>(step: &Step<'_, T>, convention: &Convention<'_>) -> Result<Divergence> {
    let beta = convention.not_negative::<T>("beta", Some(convention.beta))?;
    if beta != 0.0 && convention.algorithm == Algorithm::Rloo {
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

/// Refuses a constant of a row with tokens that is not finite.
fn rows_are_finite<T: Float>(step: &Step<'_, T>, places: &[Place]) -> Result<()> {
    let signals = [
        ("advantages", Some(step.advantages)),
        ("weights", step.weights),
    ];
    for (argument, signal) in signals {
        let Some(Signal::Rows(values)) = signal else {
            continue;
        };
        for (row, (value, place)) in values.iter().zip(places).enumerate() {
            let found = value.widen();
            if place.tokens > 0 && !found.is_finite() {
                return Err(Error::NotFinite {
                    argument,
                    found,
                    row,
                    slot: 0,
                });
            }
        }
    }
    Ok(())
}

/// Names the first value of a token that is not finite.
#[cold]
fn slots_are_finite<T: Float>(step: &Step<'_, T>, places: &[Place], has_kl: bool) -> Result<()> {
    let of_slots = |signal| match signal {
        Some(Signal::Slots(values)) => Some(values),
        _ => None,
    };
    let arrays = [
        ("policy", Some(step.policy)),
        ("old", step.old),
        ("reference", step.reference.filter(|_| has_kl)),
        ("advantages", of_slots(Some(step.advantages))),
        ("weights", of_slots(step.weights)),
    ];
    let mask = mask_of(&step.rows);
    for (argument, values) in arrays {
        let Some(values) = values else { continue };
        for (row, place) in places.iter().enumerate() {
            for index in place.start..place.valid_end {
                let found = values[index].widen();
                let is_token = mask.is_none_or(|mask| mask[index] != 0);
                if is_token && !found.is_finite() {
                    return Err(Error::NotFinite {
                        argument,
                        found,
                        row,
                        slot: index - place.start,
                    });
                }
            }
        }
    }
    Ok(())
}
