//! The log-probabilities that the estimators read, and how many of them are worth a thread.

use crate::Result;
use crate::error::same_length;
use crate::rows::Rows;

/// The fewest slots for which threads are used. Measured on two x86-64 cores: waking the pool costs 5 to 20 µs, and one
/// core needs 20 µs for this many slots of `f32`.
pub(super) const PARALLEL_SLOTS: usize = 1 << 17;
/// About the size of a chunk, the unit of work of a thread.
pub(super) const CHUNK_SLOTS: usize = 1 << 15;

/// The log-probabilities that estimates are computed from; all slices have one element per slot.
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

    pub(super) fn check(&self, rows: &Rows<'_>) -> Result<()> {
        let slots = self.policy.len();
        same_length("reference", self.reference.len(), slots, "`policy`")?;
        if let Some(old) = self.old {
            same_length("old", old.len(), slots, "`policy`")?;
        }
        rows.check(slots)
    }
}
