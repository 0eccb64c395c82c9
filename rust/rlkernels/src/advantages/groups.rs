//! The fast path, for groups of 2 to 64 scored rewards of ordinary size: eight groups at a time, without compensation.
//!
//! Every lane of a block holds one group. The first pass computes its centre c ≈ mean by a plain sum; the second, over
//! x = R − c, the residual r = mean(x) and q = Σx² − n·r² = Σ(x − r)². Then A = ((R − c) − r) · (1 / divisor).
//!
//! The error, in units of u = 2⁻⁵³ and to first order, for n rewards of magnitude at most M with deviations δ = R − mean:
//! - The error of x is 1·|x|, and c need not be the mean, because r corrects it. r is a mean of small numbers with an
//!   error of (2 + depth)·mean|δ|, where depth counts the roundings of a term of the sum: 3 across lanes, n / 16 inside.
//!   The error of the numerator is 2·|δ| + (2 + depth)·mean|δ|.
//! - The error of q is 2 (x, squared) + depth + 2 roundings. The shift that all x share costs the second order only, and
//!   the subtraction loses nothing while n·r² ≤ Σx²/16, which is checked. The root halves that; the root itself, eps, the
//!   reciprocal, a factor and the product add up to 5. Where one reward dominates q, the only case of |δ| near 2M, an
//!   error of its x moves numerator and root alike and cancels.
//!
//! If every rounding were the largest possible and of the worst sign, this could exceed the promised 16·M / divisor (23
//! for n = 64). `tests/kernels/advantages_bound.rs` searches for the largest error among groups that strain each term.
//!
//! Groups that fail a check take the path of [`compensated`]: unscored or infinite rewards (q is NaN), constant or nearly
//! equal ones (r is not small against x), spreads outside 2^±400. The choice depends on the group alone, so it is the
//! same on every instruction set.

use super::compensated;
use super::plan::Plan;
use super::transposed;
use crate::isa::{F64_LANES, Kernel, Lanes, Simd, dispatch};
use crate::{Float, Result};

/// Consecutive groups; `start` is the index of the first reward.
pub(super) struct Groups<'a, T> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) rewards: &'a [T],
    pub(super) start: usize,
    pub(super) out: &'a mut [T],
}

impl<T: Float> Kernel for Groups<'_, T> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        match self.plan.size {
            2 => self.blocks::<S, 2, 0>(s),
            3 => self.blocks::<S, 3, 0>(s),
            4 => self.blocks::<S, 4, 0>(s),
            5 => self.blocks::<S, 5, 0>(s),
            6 => self.blocks::<S, 6, 0>(s),
            7 => self.blocks::<S, 7, 0>(s),
            8 => self.blocks::<S, 0, 1>(s),
            16 => self.blocks::<S, 0, 2>(s),
            32 => self.blocks::<S, 0, 4>(s),
            _ => self.blocks::<S, 0, 0>(s),
        }
    }
}

impl<T: Float> Groups<'_, T> {
    /// Writes the advantages.
    pub(super) fn compute(self) -> Result<()> {
        if self.plan.is_fast {
            dispatch(self)
        } else {
            dispatch(Compensated {
                groups: self,
                bits: u32::MAX,
            })
        }
    }

    /// Blocks of eight groups and a last, shorter one. `SMALL` is the size of groups below eight, else 0; `CHUNKS` is the
    /// size divided by eight where it is known at compile time, else 0.
    #[inline(always)]
    fn blocks<S: Simd, const SMALL: usize, const CHUNKS: usize>(self, s: S) -> Result<()> {
        let (plan, start) = (self.plan, self.start);
        let block = plan.size * F64_LANES;
        let parts = self.rewards.chunks(block).zip(self.out.chunks_mut(block));
        for (number, (rewards, out)) in parts.enumerate() {
            let whole = rewards.len() == block;
            let holds = match (SMALL > 0, whole) {
                (true, _) => transposed::block::<S, T, SMALL>(s, plan, rewards, out),
                (_, true) => block_of::<S, T, CHUNKS, true>(s, plan, rewards, out),
                (_, false) => block_of::<S, T, CHUNKS, false>(s, plan, rewards, out),
            };
            if holds != 0xff {
                let start = start + number * block;
                let groups = Groups {
                    plan,
                    rewards,
                    start,
                    out,
                };
                dispatch(Compensated {
                    groups,
                    bits: !holds,
                })?;
            }
        }
        Ok(())
    }
}

/// The compensated path for the groups whose bit is set; groups after the 32nd have the last bit.
struct Compensated<'a, T> {
    groups: Groups<'a, T>,
    bits: u32,
}

impl<T: Float> Kernel for Compensated<'_, T> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let Groups {
            plan,
            rewards,
            start,
            out,
        } = self.groups;
        let groups = rewards.chunks_exact(plan.size);
        let outs = out.chunks_exact_mut(plan.size);
        for (number, (group, out)) in groups.zip(outs).enumerate() {
            if self.bits >> number.min(31) & 1 != 0 {
                let how = (plan.eps, plan.convention, plan.batch);
                compensated::group(s, group, start + number * plan.size, how, out)?;
            }
        }
        Ok(())
    }
}

/// Up to eight groups, with lanes along each group. Returns for which groups the fast path holds.
#[inline(always)]
fn block_of<S: Simd, T: Float, const CHUNKS: usize, const WHOLE: bool>(
    s: S,
    plan: &Plan<'_>,
    rewards: &[T],
    out: &mut [T],
) -> u32 {
    let size = if CHUNKS > 0 {
        CHUNKS * F64_LANES
    } else {
        plan.size
    };
    let count = if WHOLE {
        F64_LANES
    } else {
        rewards.len() / size
    };
    let zeros = [s.f64(0.0); F64_LANES];
    let mut sums = zeros;
    for (group, sum) in rewards.chunks_exact(size).zip(&mut sums).take(count) {
        *sum = total(s, group);
    }
    let centres = (s.sums64(&sums) * s.f64(plan.share)).array();
    let (mut sums, mut squares) = (zeros, zeros);
    for (i, group) in rewards.chunks_exact(size).enumerate().take(count) {
        (sums[i], squares[i]) = moments(s, group, s.f64(centres[i]));
    }
    let (residuals, inverses, holds) = plan.settle(s, s.sums64(&sums), s.sums64(&squares));
    let (residuals, inverses) = (residuals.array(), inverses.array());
    let outs = out.chunks_exact_mut(size);
    for (i, (group, out)) in rewards.chunks_exact(size).zip(outs).enumerate().take(count) {
        let by = (s.f64(centres[i]), s.f64(residuals[i]), s.f64(inverses[i]));
        write(s, group, by, out);
    }
    holds
}

/// Σ over a group, lane by lane, even and odd chunks apart.
#[inline(always)]
fn total<S: Simd, T: Float>(s: S, group: &[T]) -> S::F64 {
    let (pairs, single, last) = parts(s, group);
    let (mut even, mut odd) = (s.f64(0.0), s.f64(0.0));
    for [a, b] in pairs {
        even = even + T::load(s, a);
        odd = odd + T::load(s, b);
    }
    for a in single {
        even = even + T::load(s, a);
    }
    if let Some((last, is_new)) = last {
        odd = odd + S::F64::select(is_new, T::load(s, last), s.f64(0.0));
    }
    even + odd
}

/// Σx and Σx² with x = R − centre, lane by lane.
#[inline(always)]
fn moments<S: Simd, T: Float>(s: S, group: &[T], centre: S::F64) -> (S::F64, S::F64) {
    let (pairs, single, last) = parts(s, group);
    let zero = s.f64(0.0);
    let (mut sums, mut squares) = ((zero, zero), (zero, zero));
    for [a, b] in pairs {
        let (a, b) = (T::load(s, a) - centre, T::load(s, b) - centre);
        sums = (sums.0 + a, sums.1 + b);
        squares = (a.fma(a, squares.0), b.fma(b, squares.1));
    }
    for a in single {
        let a = T::load(s, a) - centre;
        sums.0 = sums.0 + a;
        squares.0 = a.fma(a, squares.0);
    }
    if let Some((last, is_new)) = last {
        let x = S::F64::select(is_new, T::load(s, last) - centre, zero);
        sums.1 = sums.1 + x;
        squares.1 = x.fma(x, squares.1);
    }
    (sums.0 + sums.1, squares.0 + squares.1)
}

/// ((R − centre) − residual) · inverse.
#[inline(always)]
fn write<S: Simd, T: Float>(
    s: S,
    group: &[T],
    (centre, residual, inverse): (S::F64, S::F64, S::F64),
    out: &mut [T],
) {
    let (chunks, rest) = group.as_chunks::<F64_LANES>();
    let (outs, _) = out.as_chunks_mut::<F64_LANES>();
    for (chunk, out) in chunks.iter().zip(outs) {
        T::store(s, ((T::load(s, chunk) - centre) - residual) * inverse, out);
    }
    if !rest.is_empty()
        && let (Some(last), Some(out)) = (group.last_chunk(), out.last_chunk_mut())
    {
        T::store(s, ((T::load(s, last) - centre) - residual) * inverse, out);
    }
}

/// Pairs of eight rewards, eight left over, and the last eight of a group whose size is no multiple of eight, with those
/// among them that stand in none of the others.
type Parts<'a, S, T> = (
    &'a [[[T; F64_LANES]; 2]],
    &'a [[T; F64_LANES]],
    Option<(&'a [T; F64_LANES], <S as Simd>::M64)>,
);

#[inline(always)]
fn parts<S: Simd, T: Float>(s: S, group: &[T]) -> Parts<'_, S, T> {
    let (chunks, rest) = group.as_chunks::<F64_LANES>();
    let (pairs, single) = chunks.as_chunks::<2>();
    let last = match (rest.len(), group.last_chunk()) {
        (1.., Some(last)) => Some((last, s.mask64(0xff << (F64_LANES - rest.len())))),
        _ => None,
    };
    (pairs, single, last)
}
