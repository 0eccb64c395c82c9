//! KL(policy ‖ reference) summed over the whole vocabulary.

use super::samples::{CHUNK_SLOTS, PARALLEL_SLOTS};
use crate::chunks::padded;
use crate::double::Double;
use crate::error::same_length;
use crate::isa::{F32_LANES, F64_LANES, Kernel, Lanes, Mask, Simd, dispatch, tree64};
use crate::math::{exp32, exp64};
use crate::parallel::for_each;
use crate::{Error, Float, Result};

/// Writes `Σ_v p_v (log p_v − log q_v)` of every row to `out`.
///
/// `policy` and `reference` hold `out.len()` rows of `vocabulary` log-probabilities in nats. A token that the policy cannot
/// draw (−inf) adds 0, whatever the reference; one that it can and the reference cannot makes the sum +inf. A NaN, the
/// reference's under an impossible token aside, gives the positive quiet NaN. With S = Σ|terms| the error is at most
/// 8u·S for `f32` (terms in `f32`: e^x 1.8u, difference, product and result 1u each; sums in `f64`) and 16u·S for `f64`
/// (compensated sums), results below the normal range aside. Source: Kullback and Leibler (1951), eq. 2.4.
///
/// # Errors
/// A vocabulary of 0; lengths that do not match.
pub fn full_kl<T: Float>(
    policy: &[T],
    reference: &[T],
    vocabulary: usize,
    out: &mut [T],
) -> Result<()> {
    if vocabulary == 0 {
        return Err(Error::Empty {
            argument: "policy_logprobs",
        });
    }
    let slots = out.len().saturating_mul(vocabulary);
    let like = "the rows of the result times the vocabulary";
    same_length("policy_logprobs", policy.len(), slots, like)?;
    same_length(
        "reference_logprobs",
        reference.len(),
        slots,
        "`policy_logprobs`",
    )?;
    let rows = (CHUNK_SLOTS / vocabulary).max(1);
    let parts = policy
        .chunks(rows * vocabulary)
        .zip(reference.chunks(rows * vocabulary))
        .zip(out.chunks_mut(rows));
    for_each(
        slots >= PARALLEL_SLOTS,
        parts,
        |((policy, reference), out)| {
            dispatch(Full {
                policy,
                reference,
                vocabulary,
                out,
            });
        },
    );
    Ok(())
}

struct Full<'a, T> {
    policy: &'a [T],
    reference: &'a [T],
    vocabulary: usize,
    out: &'a mut [T],
}

impl<T: Float> Kernel for Full<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.policy.chunks_exact(self.vocabulary);
        let others = self.reference.chunks_exact(self.vocabulary);
        for (out, (policy, reference)) in self.out.iter_mut().zip(rows.zip(others)) {
            *out = T::narrow(match (T::f32s(policy), T::f32s(reference)) {
                (Some(policy), Some(reference)) => row32(s, policy, reference),
                _ => row64(s, policy, reference),
            });
        }
    }
}

#[inline(always)]
fn row64<S: Simd, T: Float>(s: S, policy: &[T], reference: &[T]) -> f64 {
    let (policies, policy_rest) = policy.as_chunks::<F64_LANES>();
    let (references, reference_rest) = reference.as_chunks::<F64_LANES>();
    let mut sum = Double::zero(s);
    for (policy, reference) in policies.iter().zip(references) {
        sum = sum.plus(term(s, T::load(s, policy), T::load(s, reference)));
    }
    let policy = padded(policy_rest, T::narrow(f64::NEG_INFINITY)); // adds 0
    let reference = padded(reference_rest, T::narrow(0.0));
    let last = term(s, T::load(s, &policy), T::load(s, &reference));
    sum.plus(last).total().value()
}

/// p (log p − log q) of eight tokens.
#[inline(always)]
fn term<S: Simd>(s: S, policy: S::F64, reference: S::F64) -> S::F64 {
    let difference = policy - reference;
    let infinite = s.f64(f64::INFINITY);
    let value = exp64(s, policy) * difference;
    let value = S::F64::select(difference.eq(infinite), infinite, value); // where p itself vanishes, too
    S::F64::select(policy.eq(-infinite), s.f64(0.0), value)
}

#[inline(always)]
fn row32<S: Simd>(s: S, policy: &[f32], reference: &[f32]) -> f64 {
    let (policies, policy_rest) = policy.as_chunks::<F32_LANES>();
    let (references, reference_rest) = reference.as_chunks::<F32_LANES>();
    let mut sums = (s.f64(0.0), s.f64(0.0));
    for (policy, reference) in policies.iter().zip(references) {
        let terms = sixteen(s, policy, reference);
        sums = (sums.0 + terms.0, sums.1 + terms.1);
    }
    if !policy_rest.is_empty() {
        let policy = padded(policy_rest, f32::NEG_INFINITY); // adds 0
        let terms = sixteen(s, &policy, &padded(reference_rest, 0.0));
        sums = (sums.0 + terms.0, sums.1 + terms.1);
    }
    tree64((sums.0 + sums.1).array())
}

/// The terms of sixteen tokens: in `f32` where p is no subnormal and the difference is finite, else in `f64`.
#[inline(always)]
fn sixteen<S: Simd>(
    s: S,
    policy: &[f32; F32_LANES],
    reference: &[f32; F32_LANES],
) -> (S::F64, S::F64) {
    let (policy, reference) = (s.load32(policy), s.load32(reference));
    let difference = policy - reference;
    let is_plain =
        s.f32(-87.0).le(policy) & policy.le(s.f32(1.0)) & difference.abs().lt(s.f32(f32::INFINITY));
    let value = S::F32::select(is_plain, exp32(s, policy) * difference, s.f32(0.0));
    let (mut first, mut second) = s.widen(value);
    let is_impossible = policy.eq(s.f32(f32::NEG_INFINITY));
    let other = !(is_plain | is_impossible).bits() & 0xffff;
    if other != 0 {
        let ((p, q), (r, t)) = (s.widen(policy), s.widen(reference));
        let (low, high) = (s.mask64(other as u8), s.mask64((other >> F64_LANES) as u8));
        first = S::F64::select(low, term(s, p, r), first);
        second = S::F64::select(high, term(s, q, t), second);
    }
    (first, second)
}
