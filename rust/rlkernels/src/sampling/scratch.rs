//! The scratch memory of a call: a piece for each thread, given back when the call ends.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use super::row::Scratch;

/// Bytes that a calling thread keeps for its next call; a call that needs more gives all of its scratch back.
const KEPT: usize = 1 << 23;

/// Scratch memory that may be elsewhere.
type Piece = Option<Box<Scratch>>;

thread_local! {
    static SCRATCH: Cell<Piece> = const { Cell::new(None) };
}

/// Pieces that no part of the call uses at the moment: the calling thread's, and what other threads needed beside it.
#[allow(clippy::vec_box)] // a piece changes its place without being copied
pub(super) struct Spare(Mutex<(Piece, Vec<Box<Scratch>>)>);

impl Default for Spare {
    /// What the calling thread has kept.
    fn default() -> Self {
        Self(Mutex::new((SCRATCH.take(), Vec::new())))
    }
}

impl Spare {
    /// Calls `body` with a piece that nobody else uses.
    pub(super) fn lend<T>(&self, body: impl FnOnce(&mut Scratch) -> T) -> T {
        let pieces = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = {
            let (first, rest) = &mut *pieces();
            first.take().or_else(|| rest.pop())
        };
        let mut scratch = lent.unwrap_or_default();
        let result = body(&mut scratch);
        let (first, rest) = &mut *pieces();
        match first {
            None => *first = Some(scratch),
            Some(_) => rest.push(scratch),
        }
        result
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let (first, _) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        SCRATCH.set(first.take().filter(|scratch| scratch.bytes() <= KEPT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::{Batch, Filters, Logits, Order, sample_tokens};

    /// Bytes that this thread has kept after a call with a row of so many tokens.
    fn kept_after(vocabulary: usize) -> usize {
        let logits: Vec<f64> = (0..vocabulary).map(|i| (i % 1000) as f64 * 0.01).collect();
        let batch = Batch {
            logits: Logits::F64(&logits),
            rows: 1,
            vocabulary,
            history: None,
            generated: None,
            logit_bias: None,
            xtc_coins: None,
            xtc_special_tokens: &[],
        };
        let filters = Filters {
            top_p: 0.9,
            min_p: 0.001,
            ..Filters::off(Order::MlxLm)
        };
        sample_tokens(&batch, &filters, &[0.5], &mut [0], &mut [0.0]).unwrap();
        let scratch = SCRATCH.take();
        let bytes = scratch.as_ref().map_or(0, |scratch| scratch.bytes());
        SCRATCH.set(scratch);
        bytes
    }

    #[test]
    fn a_call_gives_large_scratch_back_and_keeps_small() {
        assert!((1..=KEPT).contains(&kept_after(1000)));
        assert_eq!(kept_after(1 << 20), 0);
        assert!((1..=KEPT).contains(&kept_after(1000)));
    }
}
