//! The arrays of a step, and the checks of their lengths and values.

use super::algorithm::Algorithm;
use crate::error::same_length;
use crate::rows::{CountedRow, Rows};
use crate::{Error, Float, Result};

/// Constants of the gradient: one for every row, or one for every slot.
#[derive(Debug, Clone, Copy)]
pub enum Signal<'a, T> {
    /// One for every row.
    Rows(&'a [T]),
    /// One for every slot; those of slots that are no tokens are not used.
    Slots(&'a [T]),
}

impl<'a, T> Signal<'a, T> {
    /// The constants of slots, if this holds those.
    pub(super) fn slots(self) -> Option<&'a [T]> {
        match self {
            Self::Slots(values) => Some(values),
            Self::Rows(_) => None,
        }
    }
}

impl<T: Float> Signal<'_, T> {
    /// The constant of a row, if this holds those.
    #[inline]
    pub(super) fn of_row(self, row: usize) -> Option<f64> {
        match self {
            Self::Rows(values) => Some(values[row].widen()),
            Self::Slots(_) => None,
        }
    }
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

/// Checks that a signal has one constant for every row, or for every slot where the algorithm allows it.
pub(super) fn check_signal<T>(
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

/// Checks that the constants of rows with tokens are finite.
pub(super) fn check_row_signals<T: Float>(step: &Step<'_, T>, rows: &[CountedRow]) -> Result<()> {
    let signals = [
        ("advantages", Some(step.advantages)),
        ("weights", step.weights),
    ];
    for (argument, signal) in signals {
        let Some(Signal::Rows(values)) = signal else {
            continue;
        };
        for (row, (value, counted)) in values.iter().zip(rows).enumerate() {
            let found = value.widen();
            if counted.tokens > 0 && !found.is_finite() {
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

/// Checks that every value of a token is finite.
#[cold]
pub(super) fn check_slots<T: Float>(
    step: &Step<'_, T>,
    rows: &[CountedRow],
    has_kl: bool,
) -> Result<()> {
    let arrays = [
        ("policy", Some(step.policy)),
        ("old", step.old),
        ("reference", step.reference.filter(|_| has_kl)),
        ("advantages", step.advantages.slots()),
        ("weights", step.weights.and_then(Signal::slots)),
    ];
    let mask = step.rows.mask();
    for (argument, values) in arrays {
        let Some(values) = values else { continue };
        for (row, counted) in rows.iter().enumerate() {
            let start = counted.row.start;
            for index in start..counted.row.tokens_end {
                let found = values[index].widen();
                let is_token = mask.is_none_or(|mask| mask[index] != 0);
                if is_token && !found.is_finite() {
                    return Err(Error::NotFinite {
                        argument,
                        found,
                        row,
                        slot: index - start,
                    });
                }
            }
        }
    }
    Ok(())
}
