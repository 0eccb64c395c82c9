//! Passes over a row that only compare, in the lanes of its own type: its extent, a bound of its k-th largest value, and
//! where something is above a threshold.

use super::logits::Value;
use crate::isa::{F32_LANES, F64_LANES, Kernel, Lanes, Mask, Simd, dispatch};

/// The range of a row's values.
pub(super) struct Extent {
    pub(super) nan: bool,
    /// The largest, −inf if all are.
    pub(super) most: f64,
    /// The least of those above −inf, +inf if there are none.
    pub(super) least: f64,
}

/// Tokens per block of [`Scan::next_block_above`].
pub(super) const SCAN: usize = 64;

/// Most groups of [`Scan::below_kth`]: with one maximum per lane they are enough to choose from, and stay on the stack.
const GROUPS: usize = 64;

/// Fewest vectors of a group: with fewer, choosing among the maxima takes longer than the passes that it spares.
const GROUP: usize = 16;

/// The fewest maxima per k: the k-th largest of fewer is too low a bound to be worth a pass.
const MAXIMA_PER_K: usize = 4;

/// The passes, for each element type.
pub(super) trait Scan: Value {
    fn extent(values: &[Self]) -> Extent;

    /// A number that at least k values are above, so that the k largest are; −inf where no other is found cheaply.
    ///
    /// It is just below the k-th largest of the maxima of disjoint parts of the row: of those parts each holds a value
    /// that is as large. Hardly more than k values are above where k is small beside the number of parts.
    fn below_kth(values: &[Self], k: usize) -> Self;

    /// The first block from `from` on that holds a value above the threshold.
    fn next_block_above(values: &[Self], from: usize, threshold: Self) -> Option<usize>;
}

macro_rules! scan {
    ($float:ident, $lanes:expr, $vector:ident, $load:ident, $mask:ident) => {
        impl Scan for $float {
            fn extent(values: &[Self]) -> Extent {
                struct Body<'a>(&'a [$float]);
                impl Kernel for Body<'_> {
                    type Output = Extent;
                    #[inline(always)]
                    fn run<S: Simd>(self, s: S) -> Extent {
                        let (chunks, rest) = self.0.as_chunks::<{ $lanes }>();
                        let mut last = [$float::NEG_INFINITY; $lanes];
                        last[..rest.len()].copy_from_slice(rest);
                        let none = s.$float($float::NEG_INFINITY);
                        let (mut most, mut least) = (none, s.$float($float::INFINITY));
                        let mut nan = s.$mask(0);
                        for index in 0..=chunks.len() {
                            let x = s.$load(chunks.get(index).unwrap_or(&last));
                            nan = nan | x.is_nan();
                            most = x.max(most);
                            least = S::$vector::select(none.lt(x), x.min(least), least);
                        }
                        let (mut extent_most, mut extent_least) =
                            ($float::NEG_INFINITY, $float::INFINITY);
                        for (&most, &least) in most.array().iter().zip(&least.array()) {
                            extent_most = extent_most.max(most);
                            extent_least = extent_least.min(least);
                        }
                        Extent {
                            nan: nan.any(),
                            most: extent_most.into(),
                            least: extent_least.into(),
                        }
                    }
                }
                dispatch(Body(values))
            }

            fn below_kth(values: &[Self], k: usize) -> Self {
                struct Body<'a>(&'a [$float], &'a mut [[$float; $lanes]; GROUPS]);
                impl Kernel for Body<'_> {
                    type Output = usize;
                    #[inline(always)]
                    fn run<S: Simd>(self, s: S) -> usize {
                        let Body(values, maxima) = self;
                        let (chunks, rest) = values.as_chunks::<{ $lanes }>();
                        let mut last = [$float::NEG_INFINITY; $lanes];
                        last[..rest.len()].copy_from_slice(rest);
                        let vectors = chunks.len() + 1;
                        let group = vectors.div_ceil(GROUPS).max(GROUP);
                        let groups = vectors.div_ceil(group);
                        for (number, maxima) in maxima.iter_mut().take(groups).enumerate() {
                            let mut most = s.$float($float::NEG_INFINITY);
                            for index in number * group..vectors.min((number + 1) * group) {
                                most = s.$load(chunks.get(index).unwrap_or(&last)).max(most);
                            }
                            *maxima = most.array();
                        }
                        groups
                    }
                }
                let most = (values.len() / $lanes + 1).div_ceil(GROUP).min(GROUPS) * $lanes;
                if k == 0 || k > most / MAXIMA_PER_K {
                    return $float::NEG_INFINITY;
                }
                let mut maxima = [[$float::NEG_INFINITY; $lanes]; GROUPS];
                let groups = dispatch(Body(values, &mut maxima));
                let maxima = maxima[..groups].as_flattened_mut();
                if k > maxima.len() {
                    return $float::NEG_INFINITY;
                }
                let (_, kth, _) = maxima.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
                kth.next_down() // −inf stays what it is
            }

            fn next_block_above(values: &[Self], from: usize, threshold: Self) -> Option<usize> {
                struct Body<'a>(&'a [$float], $float);
                impl Kernel for Body<'_> {
                    type Output = Option<usize>;
                    #[inline(always)]
                    fn run<S: Simd>(self, s: S) -> Option<usize> {
                        let threshold = s.$float(self.1);
                        let (blocks, rest) = self.0.as_chunks::<SCAN>();
                        let mut last = [$float::NEG_INFINITY; SCAN];
                        last[..rest.len()].copy_from_slice(rest);
                        for number in 0..=blocks.len() {
                            let block = blocks.get(number).unwrap_or(&last);
                            let (chunks, _) = block.as_chunks::<{ $lanes }>();
                            let mut above = s.$mask(0);
                            for chunk in chunks {
                                above = above | threshold.lt(s.$load(chunk));
                            }
                            if above.any() {
                                return Some(number);
                            }
                        }
                        None
                    }
                }
                let rest = values.get(from * SCAN..)?;
                dispatch(Body(rest, threshold)).map(|block| from + block)
            }
        }
    };
}

scan!(f32, F32_LANES, F32, load32, mask32);
scan!(f64, F64_LANES, F64, load64, mask64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn at_least_k_values_are_above_the_bound(
            steps in prop::collection::vec(-40i8..40, 1..3000), k in 1usize..200, impossible in -40i8..40,
        ) {
            let real = |&step: &i8| if step < impossible { f32::NEG_INFINITY } else { f32::from(step) / 4.0 };
            let values: Vec<f32> = steps.iter().map(real).collect();
            let bound = f32::below_kth(&values, k);
            let above = values.iter().filter(|&&x| x > bound).count();
            prop_assert!(bound == f32::NEG_INFINITY || above >= k, "{above} of {k} above {bound}");
            let wide: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
            let bound = f64::below_kth(&wide, k);
            let above = wide.iter().filter(|&&x| x > bound).count();
            prop_assert!(bound == f64::NEG_INFINITY || above >= k, "{above} of {k} above {bound}");
        }

        #[test]
        fn the_bound_of_a_long_row_leaves_little_more_than_k(seed: u64, k in 1usize..=64) {
            let mut state = seed | 1;
            let values: Vec<f32> = (0..100_000).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32
            }).collect();
            let bound = f32::below_kth(&values, k);
            let above = values.iter().filter(|&&x| x > bound).count();
            prop_assert!((k..=2 * k + 16).contains(&above), "{above} of {k}");
        }
    }
}
