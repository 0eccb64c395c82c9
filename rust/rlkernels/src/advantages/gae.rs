//! Generalised advantage estimation over the tokens of a row.

use crate::double::two_sum;
use crate::error::same_length;
use crate::isa::{Kernel, Simd, dispatch};
use crate::parallel::for_each;
use crate::rows::{Row, RowIter, Rows};
use crate::{Error, Float, Result};

/// The fewest slots for which threads are used, and about the size of a chunk.
const PARALLEL: usize = 1 << 16;
const CHUNK: usize = 1 << 14;

/// What a row's recurrence reads. Slices hold one element per slot, `bootstrap` one per row.
#[derive(Debug, Clone, Copy)]
pub struct Episodes<'a, T> {
    /// r(t), the reward of each token.
    pub rewards: &'a [T],
    /// V(t), the critic's estimate before each token.
    pub values: &'a [T],
    /// The estimate after the last token of each row; `None`: 0.
    pub bootstrap: Option<&'a [T]>,
    /// Not 0 where the episode ends with the token; `None`: nowhere.
    pub terminal: Option<&'a [u8]>,
}

/// Writes `A_t = δ_t + γλ(1 − f_t)·A_{t⁺}` with `δ_t = r_t + γ(1 − f_t)·V_{t⁺} − V_t` to `out`, one element per slot.
///
/// t⁺ is the next token of the row; slots without a token are skipped and get 0, whatever they hold. After the last
/// token V is the row's bootstrap value and A is 0. A terminal token reads nothing of what follows it.
///
/// The recurrence runs in twice the precision of `f64`, so its error does not grow with the row's length:
/// `|error| ≤ k·2u·S`, k = 4 for `f32` and 8 for `f64`, with S the same recurrence over absolute values.
/// Source: J. Schulman et al. (arXiv 1506.02438, eq. 16).
///
/// # Errors
/// `gamma` or `lambda` outside [0, 1]; slices whose lengths differ from the layout's.
pub fn gae<T: Float>(
    episodes: &Episodes<'_, T>,
    rows: &Rows<'_>,
    gamma: f64,
    lambda: f64,
    out: &mut [T],
) -> Result<()> {
    fraction("gamma", gamma)?;
    fraction("lam", lambda)?;
    let slots = episodes.rewards.len();
    rows.check(slots)?;
    same_length("values", episodes.values.len(), slots, "`rewards`")?;
    same_length("out", out.len(), slots, "`rewards`")?;
    if let Some(bootstrap) = episodes.bootstrap {
        same_length(
            "bootstrap",
            bootstrap.len(),
            rows.count(),
            "the rows of `rewards`",
        )?;
    }
    if let Some(terminal) = episodes.terminal {
        same_length("terminal", terminal.len(), slots, "`rewards`")?;
    }
    let decay = Decay {
        gamma,
        trace: two_product(gamma, lambda),
    };
    let (mut rest, mut first) = (out, 0);
    let chunks = rows.sequences().chunks(CHUNK).map(|chunk| {
        let (to, after) = std::mem::take(&mut rest).split_at_mut(chunk.slots());
        rest = after;
        first += chunk.left();
        Chunk {
            episodes,
            mask: rows.mask(),
            first: first - chunk.left(),
            rows: chunk,
            decay,
            out: to,
        }
    });
    for_each(slots >= PARALLEL, chunks, dispatch);
    Ok(())
}

fn fraction(argument: &'static str, found: f64) -> Result<()> {
    if (0.0..=1.0).contains(&found) {
        return Ok(());
    }
    Err(Error::OutOfRange {
        argument,
        found,
        wanted: "between 0 and 1",
    })
}

/// γ, and γλ as an unevaluated sum.
#[derive(Debug, Clone, Copy)]
struct Decay {
    gamma: f64,
    trace: (f64, f64),
}

struct Chunk<'a, T> {
    episodes: &'a Episodes<'a, T>,
    rows: RowIter<'a>,
    mask: Option<&'a [u8]>,
    /// The number of the first row.
    first: usize,
    decay: Decay,
    out: &'a mut [T],
}

impl<T: Float> Kernel for Chunk<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let start = self.rows.start();
        for (number, row) in self.rows.clone().enumerate() {
            let out = &mut self.out[row.start - start..row.end - start];
            let last = self
                .episodes
                .bootstrap
                .map_or(0.0, |b| b[self.first + number].widen());
            backwards(self.episodes, self.mask, row, last, self.decay, out);
        }
    }
}

/// One row, from its last token to its first.
#[inline(always)]
fn backwards<T: Float>(
    episodes: &Episodes<'_, T>,
    mask: Option<&[u8]>,
    row: Row,
    bootstrap: f64,
    decay: Decay,
    out: &mut [T],
) {
    let (mut next, mut high, mut low) = (bootstrap, 0.0_f64, 0.0_f64);
    for slot in (row.start..row.end).rev() {
        let to = &mut out[slot - row.start];
        if slot >= row.tokens_end || mask.is_some_and(|mask| mask[slot] == 0) {
            *to = T::narrow(0.0);
            continue;
        }
        let (reward, value) = (
            episodes.rewards[slot].widen(),
            episodes.values[slot].widen(),
        );
        let (delta, error) = two_sum(reward, -value);
        if episodes
            .terminal
            .is_some_and(|terminal| terminal[slot] != 0)
        {
            (high, low) = (delta, error);
        } else {
            let (bootstrapped, b) = two_product(decay.gamma, next);
            let (carried, c) = two_product(decay.trace.0, high);
            let c = decay.trace.0.mul_add(low, decay.trace.1.mul_add(high, c));
            let (sum, s) = two_sum(delta, bootstrapped);
            (high, low) = two_sum(sum, carried);
            low += error + b + c + s;
        }
        low = if low.is_finite() { low } else { 0.0 }; // an infinite term leaves an error that is none
        (high, low) = two_sum(high, low);
        *to = T::narrow(high);
        next = value;
    }
}

/// `a · b` as `(product, error)`, exact unless it over- or underflows.
#[inline(always)]
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Valid;

    fn of(rows: &Rows<'_>, episodes: &Episodes<'_, f64>, gamma: f64, lambda: f64) -> Vec<f64> {
        let mut out = vec![7.0; episodes.rewards.len()];
        gae(episodes, rows, gamma, lambda, &mut out).unwrap();
        out
    }

    #[test]
    fn three_tokens_by_hand() {
        let rows = Rows::Padded {
            rows: 1,
            width: 3,
            valid: Valid::All,
        };
        let mut episodes = Episodes {
            rewards: &[1.0, 0.0, 2.0],
            values: &[0.5, 1.0, 0.25],
            bootstrap: Some(&[4.0]),
            terminal: None,
        };
        // δ = (1 + 0.5 − 0.5, 0.125 − 1, 2 + 2 − 0.25); A from the last: 3.75, −0.875 + 0.25·3.75, 1 + 0.25·0.0625
        assert_eq!(of(&rows, &episodes, 0.5, 0.5), [1.015_625, 0.0625, 3.75]);
        episodes.terminal = Some(&[0, 1, 0]);
        assert_eq!(of(&rows, &episodes, 0.5, 0.5), [0.75, -1.0, 3.75]);
    }

    #[test]
    fn masked_slots_are_skipped_whatever_they_hold() {
        let mask = [1, 0, 1, 0];
        let rows = Rows::Padded {
            rows: 1,
            width: 4,
            valid: Valid::Mask(&mask),
        };
        let episodes = Episodes {
            rewards: &[1.0, f64::NAN, 2.0, f64::INFINITY],
            values: &[0.5, f64::NAN, 0.25, f64::NAN],
            bootstrap: None,
            terminal: None,
        };
        assert_eq!(of(&rows, &episodes, 0.5, 1.0), [1.5, 0.0, 1.75, 0.0]);
    }

    #[test]
    fn a_discount_beyond_one_is_refused() {
        let episodes = Episodes {
            rewards: &[1.0],
            values: &[0.0],
            bootstrap: None,
            terminal: None,
        };
        let found = gae(&episodes, &Rows::Ragged(&[1]), 1.5, 0.9, &mut [0.0]).unwrap_err();
        assert_eq!(found.to_string(), "`gamma` is 1.5, must be between 0 and 1");
    }
}
