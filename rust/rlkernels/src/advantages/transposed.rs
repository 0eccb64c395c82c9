//! Groups of 2 to 7, transposed: one group per lane, so no sum runs across lanes.

use super::plan::Plan;
use crate::Float;
use crate::isa::{F64_LANES, Lanes, Simd};

/// Up to eight groups of `SIZE`. Returns for which groups the fast path holds; see [`super::groups`].
#[inline(always)]
pub(super) fn block<S: Simd, T: Float, const SIZE: usize>(
    s: S,
    plan: &Plan<'_>,
    rewards: &[T],
    out: &mut [T],
) -> u32 {
    let (groups, _) = rewards.as_chunks::<SIZE>();
    let mut columns = [[T::narrow(0.0); F64_LANES]; SIZE];
    for (lane, group) in groups.iter().enumerate().take(F64_LANES) {
        for (column, &reward) in columns.iter_mut().zip(group) {
            column[lane] = reward;
        }
    }
    let zero = s.f64(0.0);
    let mut x = [zero; SIZE];
    let mut sum = zero;
    for (x, column) in x.iter_mut().zip(&columns) {
        *x = T::load(s, column);
        sum = sum + *x;
    }
    let centre = sum * s.f64(plan.share);
    let (mut sum, mut squares) = (zero, zero);
    for x in &mut x {
        *x = *x - centre;
        sum = sum + *x;
        squares = x.fma(*x, squares);
    }
    let (residual, inverse, holds) = plan.settle(s, sum, squares);
    for (x, column) in x.into_iter().zip(&mut columns) {
        T::store(s, (x - residual) * inverse, column);
    }
    let (outs, _) = out.as_chunks_mut::<SIZE>();
    for (lane, out) in outs.iter_mut().enumerate().take(F64_LANES) {
        for (out, column) in out.iter_mut().zip(&columns) {
            *out = column[lane];
        }
    }
    holds
}
