//! Log-probabilities of chosen tokens and entropies, computed from logits, and their gradients.
//!
//! `log p_v = x_v/τ − log Σ_w e^(x_w/τ)` and `H = −Σ_v p_v log p_v` of the distribution at temperature τ. The logits are read
//! once, in blocks that fit the first cache; nothing of the vocabulary's size is stored. `f32`, float16 and bfloat16 are
//! computed in `f32` with the exponent carried apart and summed in `f64`; `f64` is computed in `f64` with compensated sums.
//!
//! A logit of −inf is a token of probability 0: its log-probability is −inf and it adds nothing to the entropy. A row that
//! holds NaN or +inf, or nothing but −inf, has no distribution: its log-probability and entropy are NaN.

mod format;
mod forward;
mod gradient;
mod ids;
mod row;
mod scan;

use crate::error::same_length;
use crate::{Error, Float, Result};

pub use format::{Bf16, F16, Format};
pub use ids::Ids;

/// Writes log p of the tokens of each row to `logprobs` and, where wanted, each row's entropy in nats to `entropy`.
///
/// `logits` holds one row of `vocabulary` logits for each row of `ids`; `logprobs` has an element for each of its tokens.
/// `temperature` is rounded once to the result's type. Results are never above 0 (log-probabilities) or below 0
/// (entropies).
///
/// `|error| ≤ k·2u·S` with `S = |x_id − M|/τ + max(1, log Σ e^((x−M)/τ))` for log-probabilities, M the row's maximum, and
/// S = max(1, H) for entropies; k = 4, u = 2⁻²⁴ for `f32` and the half types, k = 8, u = 2⁻⁵³ for `f64`.
///
/// # Errors
/// A temperature that is not finite and above 0 in the result's type; lengths that do not match; rows without a
/// vocabulary; an id outside it that is not ignored.
pub fn selective_log_softmax<'a, F: Format>(
    logits: &[F::Word],
    ids: impl Into<Ids<'a>>,
    vocabulary: usize,
    temperature: f64,
    logprobs: &mut [F::Result],
    entropy: Option<&mut [F::Result]>,
) -> Result<()> {
    let ids = ids.into();
    let temperature = check::<F>(logits, ids, vocabulary, temperature)?;
    same_length("out", logprobs.len(), ids.tokens.len(), "`ids`")?;
    if let Some(entropy) = &entropy {
        same_length("entropy", entropy.len(), ids.rows(), ROWS)?;
    }
    F::forward(logits, ids, vocabulary, temperature, logprobs, entropy);
    Ok(())
}

/// Writes the gradient for the logits to `out`: `(Σ g·(onehot − p) − g_H·p·(log p + H)) / τ`, g and `g_H` the gradients that
/// come from the log-probabilities of a row's tokens and, where there is one, from its entropy.
///
/// A row whose every g and `g_H` are 0 gets exactly 0 and is not read: masked tokens may hold anything. A logit of −inf that is
/// not chosen gets exactly 0. A row that has no distribution, or whose `g/τ` or `g_H/τ` is not finite, gets NaN. Half types are
/// rounded from `f32`, to nearest, ties to even.
///
/// `|error| ≤ k·2u·S` with `S = (Σ |g|·(|1[v = id] − p| + p·c) + |g_H|·p·((1 + c)·|log p + H| + c + max(1, H))) / τ`, where
/// `c = (M − x_v)/τ + max(1, log Σ e^((x−M)/τ))` is the S of `log p`, and k, u as for [`selective_log_softmax`], subnormal
/// results and the rounding to a half type aside.
///
/// # Errors
/// As [`selective_log_softmax`].
pub fn selective_log_softmax_backward<'a, F: Format>(
    logits: &[F::Word],
    ids: impl Into<Ids<'a>>,
    grad_logprobs: &[F::Result],
    grad_entropy: Option<&[F::Result]>,
    vocabulary: usize,
    temperature: f64,
    out: &mut [F::Word],
) -> Result<()> {
    let ids = ids.into();
    let temperature = check::<F>(logits, ids, vocabulary, temperature)?;
    let tokens = ids.tokens.len();
    same_length("grad_logprobs", grad_logprobs.len(), tokens, "`ids`")?;
    if let Some(grads) = grad_entropy {
        same_length("grad_entropy", grads.len(), ids.rows(), ROWS)?;
    }
    same_length("out", out.len(), logits.len(), "`logits`")?;
    let entropy = grad_entropy.unwrap_or(&[]);
    F::backward(
        logits,
        ids,
        grad_logprobs,
        entropy,
        vocabulary,
        temperature,
        out,
    );
    Ok(())
}

/// What sets the number of rows.
const ROWS: &str = "the rows of `ids`";

/// The temperature as the kernels use it, if everything fits together.
fn check<F: Format>(
    logits: &[F::Word],
    ids: Ids<'_>,
    vocabulary: usize,
    temperature: f64,
) -> Result<f64> {
    let rounded = F::Result::narrow(temperature).widen();
    if !(rounded > 0.0 && rounded < f64::INFINITY) {
        return Err(Error::NotPositive {
            argument: "temperature",
            found: rounded,
            dtype: F::Result::NAME,
        });
    }
    if ids.per_row == 0 {
        return Err(Error::TooSmall {
            argument: "per_row",
            found: 0,
            least: 1,
        });
    }
    let tokens = ids.tokens.len();
    if vocabulary == 0 && tokens > 0 {
        return Err(Error::NoVocabulary);
    }
    let rows = ids.rows();
    same_length("ids", tokens, rows * ids.per_row, "rows of `per_row`")?;
    let expected = rows.saturating_mul(vocabulary);
    same_length(
        "logits",
        logits.len(),
        expected,
        "the rows of `ids` times the vocabulary",
    )?;
    let most = i64::try_from(vocabulary).unwrap_or(i64::MAX) - 1;
    let outside = |id: i64| (id < 0 || id > most) && !ids.is_ignored(id);
    match ids.tokens.iter().position(|&id| outside(id)) {
        None => Ok(rounded),
        Some(index) => Err(Error::OutsideVocabulary {
            index,
            found: ids.tokens[index],
            most,
        }),
    }
}

/// Gives a format its kernels.
macro_rules! kernels_of {
    ($format:ty, $word:ty, $result:ty, $name:literal) => {
        impl format::sealed::Sealed for $format {}
        impl Format for $format {
            type Word = $word;
            type Result = $result;
            const NAME: &'static str = $name;

            fn forward(
                logits: &[$word],
                ids: Ids<'_>,
                vocabulary: usize,
                temperature: f64,
                logprobs: &mut [$result],
                entropy: Option<&mut [$result]>,
            ) {
                forward::run::<Self>(logits, ids, vocabulary, temperature, logprobs, entropy);
            }

            fn backward(
                logits: &[$word],
                ids: Ids<'_>,
                logprobs: &[$result],
                entropy: &[$result],
                vocabulary: usize,
                temperature: f64,
                out: &mut [$word],
            ) {
                gradient::run::<Self>(logits, ids, logprobs, entropy, vocabulary, temperature, out);
            }
        }
    };
}
kernels_of!(f32, f32, f32, "float32");
kernels_of!(f64, f64, f64, "float64");
kernels_of!(F16, u16, f32, "float16");
kernels_of!(Bf16, u16, f32, "bfloat16");
