//! The pass over the rows of a chunk: the row's ratio where one is needed, then loss, gradient and metrics together.

use super::divergence::{Divergence, NO_KL};
use super::metrics::Tally;
use super::row_sums::{LossSums, RatioSums, Row};
use super::step::Signal;
use super::surrogate::{RowRatio, Surrogate};
use crate::Float;
use crate::chunks::{Chunk, Columns};
use crate::isa::{F64_LANES, Kernel, Simd};
use crate::kl::KlRatio;
use crate::rows::CountedRow;

/// What all rows share.
#[derive(Clone, Copy)]
pub(super) struct Batch<'a, T, P> {
    pub(super) columns: Columns<'a, T, 5>,
    pub(super) advantages: Signal<'a, T>,
    pub(super) weights: Option<Signal<'a, T>>,
    pub(super) row_weights: &'a [f64],
    pub(super) surrogate: P,
    pub(super) divergence: Divergence,
}

/// A chunk of the rows, with its piece of the gradient. What `KL` (see `divergence.rs`) and `SLOTS` (an advantage or a
/// weight for every slot) say is known when it is compiled: branches in the loop take 8 to 15% of its time.
pub(super) struct Pass<'a, 'b, T, P, const KL: u8, const SLOTS: bool> {
    pub(super) batch: &'b Batch<'a, T, P>,
    pub(super) chunk: Chunk<'b, T>,
}

impl<T: Float, P: Surrogate, const KL: u8, const SLOTS: bool> Kernel
    for Pass<'_, '_, T, P, KL, SLOTS>
{
    type Output = Tally;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Tally {
        let Self { batch, chunk } = self;
        let mut tally = Tally::default();
        let mut gradient = chunk.out;
        for (number, &CountedRow { row, tokens }) in chunk.rows.iter().enumerate() {
            let index = chunk.first + number;
            let (to, rest) = gradient.split_at_mut(row.end - row.start);
            gradient = rest;
            let (to, padding) = to.split_at_mut(row.tokens_end - row.start);
            padding.fill(T::default());
            if tokens == 0 {
                to.fill(T::default());
                continue;
            }
            let (groups, rest) = batch.columns.groups(row);
            let values = Row {
                advantage: s.f64(batch.advantages.of_row(index).unwrap_or(0.0)), // 0: slots have their own
                weight: s.f64(
                    batch
                        .weights
                        .map_or(1.0, |weights| weights.of_row(index).unwrap_or(0.0)),
                ),
                share: s.f64(batch.row_weights[index]),
            };
            let mut surrogate = batch.surrogate;
            let mut divergence = batch.divergence;
            let needs_mean = KL != NO_KL && divergence.ratio == KlRatio::Sequence;
            let row_ratio = surrogate.row_ratio();
            let mut log_and_ratio = (0.0, 1.0);
            if needs_mean || row_ratio != RowRatio::Token {
                let mut sums = RatioSums::new(s, surrogate, divergence, needs_mean);
                for groups in [groups, rest.groups()] {
                    sums.add::<T, KL, SLOTS>(s, &groups, values);
                }
                let mean = sums.differences.total::<T>().over(tokens);
                let whole = match row_ratio {
                    RowRatio::ClippedMean => sums.clipped.total::<T>().over(tokens),
                    RowRatio::Product => sums.differences.total::<T>(),
                    _ => mean,
                };
                log_and_ratio = (whole.value(), whole.exp(s));
                surrogate = surrogate.of_row(log_and_ratio.1, tokens);
                divergence.row = (
                    mean.exp(s),
                    sums.estimates.total::<T>().over(tokens).value(),
                );
            }
            let mut sums = LossSums::new(s);
            let (to, to_rest) = to.as_chunks_mut::<F64_LANES>();
            let mut last = [T::default(); F64_LANES];
            let rest_len = to_rest.len();
            let pieces = [
                (groups, to),
                (rest.groups(), std::slice::from_mut(&mut last)),
            ];
            for (groups, to) in pieces {
                sums.add::<T, P, KL, SLOTS>(s, surrogate, divergence, &groups, values, to);
            }
            to_rest.copy_from_slice(&last[..rest_len]);
            let of_row = (row_ratio != RowRatio::Token).then_some(log_and_ratio);
            let sign = batch.advantages.of_row(index);
            tally.add_row::<T, S>(&sums, batch.row_weights[index], tokens, of_row, sign);
        }
        tally
    }
}
