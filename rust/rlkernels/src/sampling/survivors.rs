//! The tokens that the filters keep, from the whole row to the result.

use super::cut::Candidate;
use super::filters::Tied;
use super::list::{ExponentAtLeast, List, Source, WeightAtMost};
use super::logits::Value;
use super::passes::{BLOCK, Weight, ln};
use super::scan::{Extent, Scan};
use super::select::{at_least, top_k, top_k_cut, top_p};
use crate::Float;
use crate::isa::scatter;

/// If at most one of so many tokens stays, sorting the k best by their ids is cheaper than another pass over all.
const SPARSE: usize = 64;

/// The result of a row.
pub(super) enum Sink<'a, T> {
    /// The log-probabilities of all tokens.
    Logprobs(&'a mut [T]),
    /// One token and its log-probability.
    Draw {
        uniform: f64,
        token: &'a mut i64,
        logprob: &'a mut f64,
    },
}

/// Memory of the filters, used again for every row of a thread.
#[derive(Default)]
pub(super) struct Work {
    list: List,
    spare: List,
    candidates: Vec<Candidate>,
    halves: Vec<Candidate>,
    sums: Vec<f64>,
}

impl Work {
    /// The memory that it holds.
    pub(super) fn bytes(&self) -> usize {
        let candidates = self.candidates.capacity() + self.halves.capacity();
        self.list.bytes()
            + self.spare.bytes()
            + candidates * size_of::<Candidate>()
            + 8 * self.sums.capacity()
    }
}

/// The tokens kept so far: the whole row, or a list.
pub(super) struct Survivors<'a, E> {
    row: &'a [E],
    listed: bool,
    /// Of the tokens kept so far; the least is only valid where a filter needs it.
    extent: Extent,
    work: &'a mut Work,
}

/// Evaluates an expression with the kept tokens as a source: of the row's type, or a list of `f64`.
macro_rules! with_source {
    ($survivors:ident, $source:ident => $body:expr) => {
        if $survivors.listed {
            let $source = Source {
                values: $survivors.work.list.values(),
                ids: Some($survivors.work.list.ids()),
            };
            $body
        } else {
            let $source = Source {
                values: $survivors.row,
                ids: None,
            };
            $body
        }
    };
}

impl<'a, E: Scan> Survivors<'a, E> {
    /// All tokens of a row.
    pub(super) fn new(row: &'a [E], extent: Extent, work: &'a mut Work) -> Self {
        Self {
            row,
            listed: false,
            extent,
            work,
        }
    }

    fn weight(&self, temperature: f64) -> Weight {
        Weight {
            most: self.extent.most,
            temperature,
        }
    }

    /// Makes the spare list, into which the last filter wrote, the list of kept tokens.
    fn take_spare(&mut self) {
        std::mem::swap(&mut self.work.list, &mut self.work.spare);
        self.listed = true;
    }

    pub(super) fn top_k(&mut self, k: usize, tied: Tied) {
        if k == 0 {
            return;
        }
        with_source!(self, source => {
            let best = &mut self.work.candidates;
            let Some(last) = top_k(source.values, k, best) else {
                return;
            };
            if tied == Tied::Higher || k > source.values.len() / SPARSE {
                let cut = top_k_cut(source.values, best, &last, tied);
                self.work.spare.cut(source, &cut);
            } else {
                if tied == Tied::All {
                    at_least(source.values, last.position, best);
                }
                self.work.spare.take(source, best);
            }
        });
        self.take_spare();
    }

    /// The spare list becomes the list of kept tokens if it holds so many, else the likeliest do.
    fn take_spare_of(&mut self, least: usize, tied: Tied) {
        if self.work.spare.values().len() < least {
            self.top_k(least, tied);
        } else {
            self.take_spare();
        }
    }

    pub(super) fn top_p(&mut self, p: f64, least: usize, tied: Tied, temperature: f64) {
        if p == 1.0 {
            return;
        }
        if self.listed {
            self.extent = f64::extent(self.work.list.values());
        }
        let weight = self.weight(temperature);
        with_source!(self, source => {
            let work = (&mut self.work.candidates, &mut self.work.halves, &mut self.work.sums);
            match top_p(source.values, &self.extent, weight, p, tied, work) {
                Some(cut) => self.work.spare.cut(source, &cut),
                None => return,
            }
        });
        self.take_spare_of(least, tied);
    }

    pub(super) fn min_p(&mut self, p: f64, least: usize, tied: Tied, temperature: f64) {
        if p == 0.0 {
            return;
        }
        let keep = ExponentAtLeast(self.weight(temperature), ln(p));
        with_source!(self, source => self.work.spare.keep(source, keep));
        self.take_spare_of(least, tied);
    }

    pub(super) fn xtc(&mut self, threshold: f64, special: &[i64], temperature: f64) {
        let weight = self.weight(temperature);
        let least = with_source!(self, source => {
            let total = weight.block_sums(source.values, &mut self.work.sums);
            weight.least_above(source.values, threshold * total)
        });
        if least >= 1.0 {
            return; // none is above, or only the likeliest: the least likely of one stays
        }
        with_source!(self, source => {
            self.work.spare.keep(source, WeightAtMost(weight, least));
            for &id in special {
                if let Some(position) = source.position(id as u32) {
                    self.work.spare.insert(Value::widen(source.values[position]), id as u32);
                }
            }
        });
        self.take_spare();
        self.extent = f64::extent(self.work.list.values());
    }

    pub(super) fn finish<T: Float>(self, temperature: f64, sink: Sink<'_, T>) {
        let weight = self.weight(temperature);
        with_source!(self, source => {
            let total = weight.block_sums(source.values, &mut self.work.sums);
            let log_total = ln(total);
            match sink {
                Sink::Logprobs(out) => {
                    let tokens = source.values.iter().enumerate();
                    scatter(out, T::narrow(f64::NEG_INFINITY), tokens.map(|(position, value)| {
                        let logprob = weight.exponent_of(Value::widen(*value)) - log_total;
                        (source.id(position) as usize, T::narrow(logprob))
                    }));
                }
                Sink::Draw { uniform, token, logprob } => {
                    let position = draw(source.values, weight, &self.work.sums, uniform * total);
                    *token = i64::from(source.id(position));
                    *logprob = weight.exponent_of(Value::widen(source.values[position])) - log_total;
                }
            }
        });
    }
}

/// The first position at which the running sum of the weights exceeds `target`, given the sums of the blocks; never one
/// of weight 0. Where rounding keeps a sum from its total it is the last one with a weight.
fn draw<E: Value>(values: &[E], weight: Weight, sums: &[f64], target: f64) -> usize {
    let mut before = 0.0;
    let mut weights = [0.0; BLOCK];
    let reached = sums.iter().position(|sum| {
        let reached = before + sum > target;
        if !reached {
            before += sum;
        }
        reached
    });
    // No block reaches it: the last weight is drawn, whatever the sum before it has become.
    let last_block = || sums.iter().rposition(|&sum| sum > 0.0).unwrap_or(0);
    let (block, target) =
        reached.map_or_else(|| (last_block(), f64::INFINITY), |block| (block, target));
    let start = block * BLOCK;
    let end = values.len().min(start + BLOCK);
    weight.of_block(&values[start..end], &mut weights);
    let mut last = start;
    for (position, &weight) in (start..end).zip(&weights) {
        before += weight;
        if weight > 0.0 {
            last = position;
            if before > target {
                break;
            }
        }
    }
    last
}
