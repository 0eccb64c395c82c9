//! Tokens in buckets by value, the likeliest first, and the weight of each bucket.

use super::logits::Value;
use super::passes::{BLOCK, Vectors, Weight};
use crate::isa::lanes::Mask;
use crate::isa::tree64;
use crate::isa::{F64_LANES, Kernel, Lanes, Simd, dispatch};

/// Buckets: 32 KB of sums stay in the first-level cache, and one holds some hundred tokens of a flat distribution over
/// 150,000.
const BUCKETS: usize = 4096;

/// Adding 2⁵² rounds a number below it to an integer, which then stands in the lowest bits.
const ROUND: f64 = 4_503_599_627_370_496.0;

/// Buckets of equal width in value; the last one holds all that is deeper.
#[derive(Clone, Copy)]
pub(super) struct Buckets {
    weight: Weight,
    /// Buckets per unit of value, finite.
    scale: f64,
}

impl Buckets {
    /// Buckets from the largest value down to `depth` below it.
    pub(super) fn new(weight: Weight, depth: f64) -> Self {
        let scale = if depth > 0.0 {
            ((BUCKETS - 1) as f64 / depth).min(f64::MAX)
        } else {
            0.0
        };
        Self { weight, scale }
    }

    /// The bucket, plus [`ROUND`]. Falls as the value rises, because every step rounds monotonically.
    #[inline(always)]
    fn rounded<S: Simd>(self, s: S, x: S::F64) -> S::F64 {
        let position = (s.f64(self.weight.most) - x) * s.f64(self.scale);
        position.min(s.f64((BUCKETS - 1) as f64)) + s.f64(ROUND) // NaN, of inf · 0, becomes the last: it weighs nothing
    }

    /// Sums up the weights of every bucket, each in id order; returns the total.
    pub(super) fn sums<E: Value>(self, values: &[E], sums: &mut Vec<f64>) -> f64 {
        sums.clear();
        sums.resize(BUCKETS, 0.0);
        let Some(sums) = sums.first_chunk_mut::<BUCKETS>() else {
            return 0.0; // it has just been made that long
        };
        dispatch(SumUp(self, values, sums))
    }

    /// Calls `member(position, value, weight)` for every token of the bucket, in id order.
    pub(super) fn members<E: Value>(
        self,
        values: &[E],
        bucket: usize,
        member: impl FnMut(u32, f64, f64),
    ) {
        dispatch(Members {
            buckets: self,
            values,
            bucket,
            member,
        });
    }
}

struct SumUp<'a, E>(Buckets, &'a [E], &'a mut [f64; BUCKETS]);

impl<E: Value> Kernel for SumUp<'_, E> {
    type Output = f64;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let SumUp(buckets, values, sums) = self;
        let mut weights = [0.0; BLOCK];
        let mut places = [0.0; BLOCK];
        let mut total = 0.0;
        for block in values.chunks(BLOCK) {
            let (weight_chunks, _) = weights.as_chunks_mut::<F64_LANES>();
            let (place_chunks, _) = places.as_chunks_mut::<F64_LANES>();
            let mut sum = s.f64(0.0);
            let vectors = Vectors::new(block);
            let outs = weight_chunks.iter_mut().zip(place_chunks);
            for (index, (weight_out, place_out)) in outs.take(vectors.len).enumerate() {
                let x = vectors.lanes(s, index);
                let weight = buckets.weight.lanes(s, x);
                sum = sum + weight;
                weight.store(weight_out);
                buckets.rounded(s, x).store(place_out);
            }
            total += tree64(sum.array());
            for (weight, place) in weights.iter().zip(&places).take(block.len()) {
                sums[place.to_bits() as usize % BUCKETS] += weight;
            }
        }
        total
    }
}

struct Members<'a, E, F> {
    buckets: Buckets,
    values: &'a [E],
    bucket: usize,
    member: F,
}

impl<E: Value, F: FnMut(u32, f64, f64)> Kernel for Members<'_, E, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let bucket = s.f64(self.bucket as f64 + ROUND);
        let (buckets, values) = (self.buckets, self.values);
        let vectors = Vectors::new(values);
        for index in 0..vectors.len {
            let x = vectors.lanes(s, index);
            let mut inside = buckets.rounded(s, x).eq(bucket).bits();
            if inside == 0 {
                continue;
            }
            let (x_lanes, weights) = (x.array(), buckets.weight.lanes(s, x).array());
            while inside != 0 {
                let lane = inside.trailing_zeros() as usize;
                inside &= inside - 1;
                let position = index * F64_LANES + lane;
                if position < values.len() {
                    (self.member)(position as u32, x_lanes[lane], weights[lane]);
                }
            }
        }
    }
}
