//! One estimate per token.

use super::choice::{Estimator, by_estimator};
use super::terms::{Terms, UNROLL, far, is_near32, series32};
use crate::Float;
use crate::chunks::{bits_of_16, padded};
use crate::isa::{F32_LANES, F64_LANES, Kernel, Lanes, Mask, Simd};
use crate::math::NAN_32;
use crate::rows::{Row, RowIter};

/// The bits of all lanes of a mask.
const LANES: u32 = 0xffff;

/// Writes the estimates of the rows' slots to `out`, whose first element is the first slot of the rows.
pub(super) fn each<T: Float>(
    estimator: Estimator,
    terms: Terms<'_, T>,
    rows: RowIter<'_>,
    out: &mut [T],
) {
    by_estimator!(estimator, Tokens { terms, rows, out });
}

struct Tokens<'a, T, const E: u8> {
    terms: Terms<'a, T>,
    rows: RowIter<'a>,
    out: &'a mut [T],
}

impl<T: Float, const E: u8> Kernel for Tokens<'_, T, E> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { terms, rows, out } = self;
        let first = rows.start();
        for row in rows {
            let (tokens, padding) =
                out[row.start - first..row.end - first].split_at_mut(row.tokens_end - row.start);
            padding.fill(T::narrow(0.0));
            if terms.is_plain()
                && let (Some(policy), Some(reference)) =
                    (T::f32s(terms.policy), T::f32s(terms.reference))
                && let Some(tokens) = T::f32s_mut(tokens)
            {
                let range = row.start..row.tokens_end;
                let (policy, reference) = (&policy[range.clone()], &reference[range.clone()]);
                match terms.mask {
                    None => row32::<S, E, false>(s, policy, reference, &[], tokens),
                    Some(mask) => row32::<S, E, true>(s, policy, reference, &mask[range], tokens),
                }
            } else {
                row64::<S, T, E>(s, &terms, row, tokens);
            }
        }
    }
}

/// A row in `f64` lanes.
#[inline(always)]
fn row64<S: Simd, T: Float, const E: u8>(s: S, terms: &Terms<'_, T>, row: Row, out: &mut [T]) {
    let common = terms.common_ratio(s, row);
    let mut slot = row.start;
    let (outs, rest) = out.as_chunks_mut::<F64_LANES>();
    for out in outs {
        let (_, value) = terms.eight::<S, E>(s, slot, row.tokens_end, common);
        T::store(s, value, out);
        slot += F64_LANES;
    }
    if !rest.is_empty() {
        let (_, value) = terms.eight::<S, E>(s, slot, row.tokens_end, common);
        let mut last = [T::narrow(0.0); F64_LANES];
        T::store(s, value, &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// A row in `f32` lanes.
#[inline(always)]
fn row32<S: Simd, const E: u8, const MASKED: bool>(
    s: S,
    policy: &[f32],
    reference: &[f32],
    mask: &[u8],
    out: &mut [f32],
) {
    let (policies, policy_rest) = policy.as_chunks::<F32_LANES>();
    let (references, reference_rest) = reference.as_chunks::<F32_LANES>();
    let (masks, mask_rest) = mask.as_chunks::<F32_LANES>();
    let (outs, out_rest) = out.as_chunks_mut::<F32_LANES>();
    let (policy_runs, policies) = policies.as_chunks::<UNROLL>();
    let (reference_runs, references) = references.as_chunks::<UNROLL>();
    let (mask_runs, masks) = masks.as_chunks::<UNROLL>();
    let (out_runs, outs) = outs.as_chunks_mut::<UNROLL>();
    for (i, (out, (policy, reference))) in out_runs
        .iter_mut()
        .zip(policy_runs.iter().zip(reference_runs))
        .enumerate()
    {
        let mask = if MASKED { Some(&mask_runs[i]) } else { None };
        vectors::<S, E, UNROLL>(s, policy, reference, mask, out);
    }
    for (i, (out, (policy, reference))) in outs
        .iter_mut()
        .zip(policies.iter().zip(references))
        .enumerate()
    {
        let mask = if MASKED { Some(&[masks[i]]) } else { None };
        let mut results = [[0.0; F32_LANES]];
        vectors::<S, E, 1>(s, &[*policy], &[*reference], mask, &mut results);
        *out = results[0];
    }
    if !out_rest.is_empty() {
        let (policy, reference) = ([padded(policy_rest, 0.0)], [padded(reference_rest, 0.0)]);
        let mask = [padded(mask_rest, 0)];
        let mask = if MASKED { Some(&mask) } else { None };
        let mut results = [[0.0; F32_LANES]];
        vectors::<S, E, 1>(s, &policy, &reference, mask, &mut results);
        out_rest.copy_from_slice(&results[0][..out_rest.len()]);
    }
}

/// The estimates of some vectors.
#[inline(always)]
fn vectors<S: Simd, const E: u8, const N: usize>(
    s: S,
    policy: &[[f32; F32_LANES]; N],
    reference: &[[f32; F32_LANES]; N],
    mask: Option<&[[u8; F32_LANES]; N]>,
    out: &mut [[f32; F32_LANES]; N],
) {
    let zero = s.f32(0.0);
    let (mut d, mut values, mut bits) = ([zero; N], [zero; N], [u16::MAX; N]);
    let mut all_near = s.mask32(u16::MAX);
    for i in 0..N {
        if let Some(mask) = mask {
            bits[i] = bits_of_16(&mask[i]);
        }
        let (policy, reference) = (s.load32(&policy[i]), s.load32(&reference[i]));
        d[i] = reference - policy;
        match E {
            1 => values[i] = canonical_nan(s, policy - reference), // not −(reference − policy): equal arguments give +0
            2 => values[i] = canonical_nan(s, (s.f32(0.5) * d[i]) * d[i]), // in this order an overflow of d² alone does no harm
            _ if mask.is_some() => all_near = all_near & (is_near32(s, d[i]) | !s.mask32(bits[i])),
            _ => all_near = all_near & is_near32(s, d[i]),
        }
    }
    if E == 3 {
        values = series32(s, &d, 1.0);
        for (value, &d) in values.iter_mut().zip(&d) {
            *value = d * d * *value;
        }
    }
    for i in 0..N {
        if mask.is_some() {
            values[i] = S::F32::select(s.mask32(bits[i]), values[i], zero);
        }
        values[i].store(&mut out[i]);
    }
    if E != 3 || all_near.bits() == LANES {
        return;
    }
    for ((out, &bits), (policy, reference)) in
        out.iter_mut().zip(&bits).zip(policy.iter().zip(reference))
    {
        let (policy, reference) = (s.load32(policy), s.load32(reference));
        let is_far = !is_near32(s, reference - policy) & s.mask32(bits);
        let value = far32(s, policy, reference);
        S::F32::select(is_far, value, s.load32(out)).store(out);
    }
}

/// As [`far`], for sixteen tokens, rounded once.
#[inline(always)]
fn far32<S: Simd>(s: S, policy: S::F32, reference: S::F32) -> S::F32 {
    let ((p, q), (r, t)) = (s.widen(policy), s.widen(reference));
    canonical_nan(s, s.narrow(far(s, p, r), far(s, q, t)))
}

/// Any NaN becomes the positive quiet one.
#[inline(always)]
fn canonical_nan<S: Simd>(s: S, value: S::F32) -> S::F32 {
    S::F32::select(value.is_nan(), s.f32(NAN_32), value)
}
