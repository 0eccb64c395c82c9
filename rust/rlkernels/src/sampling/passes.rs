//! Weights of a row's tokens, in lanes.

use super::logits::Value;
use crate::double::Sum;
use crate::isa::{F64_LANES, Kernel, Lanes, Simd, dispatch, tree64};
use crate::math::{exp64, log64};

/// Tokens per block, the unit of the running sum; its weights fit on the stack.
pub(super) const BLOCK: usize = 256;

/// A row as vectors of eight lanes, the last one filled up with −inf.
///
/// Loops use an index and no closure: a closure inside a kernel is compiled without the kernel's instructions.
pub(super) struct Vectors<'a, E> {
    chunks: &'a [[E; F64_LANES]],
    last: [E; F64_LANES],
    pub(super) len: usize,
}

impl<'a, E: Value> Vectors<'a, E> {
    #[inline(always)]
    pub(super) fn new(values: &'a [E]) -> Self {
        let (chunks, rest) = values.as_chunks::<F64_LANES>();
        let mut last = [E::NONE; F64_LANES];
        last[..rest.len()].copy_from_slice(rest);
        Self {
            chunks,
            last,
            len: values.len().div_ceil(F64_LANES),
        }
    }

    #[inline(always)]
    pub(super) fn lanes<S: Simd>(&self, s: S, index: usize) -> S::F64 {
        E::lanes(s, self.chunks.get(index).unwrap_or(&self.last))
    }
}

/// Weights exp((x − `most`) / `temperature`): at most 1 where `most` is the largest value.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    pub(super) most: f64,
    pub(super) temperature: f64,
}

impl Weight {
    #[inline(always)]
    pub(super) fn exponent<S: Simd>(self, s: S, x: S::F64) -> S::F64 {
        (x - s.f64(self.most)) / s.f64(self.temperature)
    }

    #[inline(always)]
    pub(super) fn lanes<S: Simd>(self, s: S, x: S::F64) -> S::F64 {
        exp64(s, self.exponent(s, x))
    }

    /// (x − `most`) / `temperature` of one value.
    pub(super) fn exponent_of(self, x: f64) -> f64 {
        (x - self.most) / self.temperature
    }

    /// Writes the weights of at most [`BLOCK`] values and returns their sum.
    pub(super) fn of_block<E: Value>(self, values: &[E], weights: &mut [f64; BLOCK]) -> f64 {
        struct Body<'a, E>(Weight, &'a [E], &'a mut [f64; BLOCK]);
        impl<E: Value> Kernel for Body<'_, E> {
            type Output = f64;
            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> f64 {
                let Body(weight, values, out) = self;
                let (out, _) = out.as_chunks_mut::<F64_LANES>();
                let mut sum = s.f64(0.0);
                let vectors = Vectors::new(values);
                for (index, out) in out[..vectors.len].iter_mut().enumerate() {
                    let w = weight.lanes(s, vectors.lanes(s, index));
                    w.store(out);
                    sum = sum + w;
                }
                tree64(sum.array())
            }
        }
        dispatch(Body(self, values, weights))
    }

    /// The sum of the weights of every block of values, in order; returns the total.
    pub(super) fn block_sums<E: Value>(self, values: &[E], sums: &mut Vec<f64>) -> f64 {
        struct Body<'a, E>(Weight, &'a [E], &'a mut Vec<f64>);
        impl<E: Value> Kernel for Body<'_, E> {
            type Output = f64;
            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> f64 {
                let Body(weight, values, sums) = self;
                let mut total = Sum::default(); // its log is a result: a thousand blocks should cost no digits
                for block in values.chunks(BLOCK) {
                    let mut sum = s.f64(0.0);
                    let vectors = Vectors::new(block);
                    for index in 0..vectors.len {
                        sum = sum + weight.lanes(s, vectors.lanes(s, index));
                    }
                    let sum = tree64(sum.array());
                    sums.push(sum);
                    total.add(sum);
                }
                total.value()
            }
        }
        sums.clear();
        dispatch(Body(self, values, sums))
    }

    /// The least weight above a bound, +inf if there is none.
    pub(super) fn least_above<E: Value>(self, values: &[E], bound: f64) -> f64 {
        struct Body<'a, E>(Weight, &'a [E], f64);
        impl<E: Value> Kernel for Body<'_, E> {
            type Output = f64;
            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> f64 {
                let Body(weight, values, bound) = self;
                let bound = s.f64(bound);
                let mut least = s.f64(f64::INFINITY);
                let vectors = Vectors::new(values);
                for index in 0..vectors.len {
                    let w = weight.lanes(s, vectors.lanes(s, index));
                    least = S::F64::select(bound.lt(w), w.min(least), least);
                }
                least.array().into_iter().fold(f64::INFINITY, f64::min)
            }
        }
        dispatch(Body(self, values, bound))
    }
}

/// The natural logarithm of a positive number.
pub(super) fn ln(x: f64) -> f64 {
    struct Body(f64);
    impl Kernel for Body {
        type Output = f64;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f64 {
            log64(s, s.f64(self.0)).array()[0]
        }
    }
    dispatch(Body(x))
}
