//! One row: validation, penalty, filters in their order, and the draw or the log-probabilities of what is left.

use std::cell::RefCell;

use super::filters::{Filters, Order};
use super::list::{ExponentAtLeast, List, Source, WeightAtMost};
use super::logits::{Logits, Value, bfloat, half};
use super::passes::{BLOCK, Extent, Weight, extent, ln};
use super::select::{Candidate, top_k, top_p};
use crate::{Error, Result};

/// What becomes of a row.
pub(super) enum Sink<'a> {
    /// The log-probabilities of all tokens.
    Logprobs(&'a mut [f64]),
    /// One token and its log-probability.
    Draw {
        uniform: f64,
        token: &'a mut i64,
        logprob: &'a mut f64,
    },
}

/// What a row needs beside its result. It grows to the largest row that a thread has seen and is used again.
#[derive(Default)]
pub(super) struct Scratch {
    singles: Vec<f32>,
    doubles: Vec<f64>,
    work: Work,
}

#[derive(Default)]
struct Work {
    list: List,
    spare: List,
    candidates: Vec<Candidate>,
    halves: Vec<Candidate>,
    sums: Vec<f64>,
}

/// Calls `body` with this thread's scratch memory.
pub(super) fn with_scratch<T>(body: impl FnOnce(&mut Scratch) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => body(&mut scratch),
        Err(_) => body(&mut Scratch::default()), // a row inside a row: does not happen, and would be right all the same
    })
}

pub(super) fn run(
    row: usize,
    logits: Logits<'_>,
    history: &[i64],
    filters: &Filters,
    xtc_acts: bool,
    scratch: &mut Scratch,
    sink: Sink<'_>,
) -> Result<()> {
    let Scratch {
        singles,
        doubles,
        work,
    } = scratch;
    if filters.penalises() {
        logits.widen_into(doubles);
        penalise(doubles, logits, history, filters.repetition_penalty);
        return process(row, &doubles[..], filters, xtc_acts, work, sink);
    }
    match logits {
        Logits::F32(values) => process(row, values, filters, xtc_acts, work, sink),
        Logits::F64(values) => process(row, values, filters, xtc_acts, work, sink),
        Logits::F16(bits) | Logits::Bf16(bits) => {
            let single = if matches!(logits, Logits::F16(_)) {
                half
            } else {
                bfloat
            };
            singles.clear();
            singles.extend(bits.iter().map(|&b| single(b)));
            process(row, &singles[..], filters, xtc_acts, work, sink)
        }
    }
}

/// Penalises each token of the history once, from its logit as it was.
fn penalise(values: &mut [f64], logits: Logits<'_>, history: &[i64], penalty: f64) {
    let original = |id: usize| match logits {
        Logits::F16(bits) => f64::from(half(bits[id])),
        Logits::Bf16(bits) => f64::from(bfloat(bits[id])),
        Logits::F32(values) => f64::from(values[id]),
        Logits::F64(values) => values[id],
    };
    for id in history.iter().filter_map(|&id| usize::try_from(id).ok()) {
        let logit = original(id);
        values[id] = if logit > 0.0 {
            logit / penalty
        } else {
            logit * penalty
        };
    }
}

fn process<E: Value>(
    row: usize,
    values: &[E],
    filters: &Filters,
    xtc_acts: bool,
    work: &mut Work,
    sink: Sink<'_>,
) -> Result<()> {
    let extent = extent(values);
    check(row, values, &extent)?;
    if filters.temperature == 0.0 {
        greedy(values, extent.most, sink);
        return Ok(());
    }
    let Work {
        list,
        spare,
        candidates,
        halves,
        sums,
    } = work;
    let mut survivors = Survivors {
        row: values,
        listed: false,
        extent,
        list,
        spare,
        candidates,
        halves,
        sums,
    };
    match filters.order {
        Order::Hf => {
            survivors.top_k(filters.top_k);
            survivors.top_p(filters.top_p, filters.temperature);
            survivors.min_p(filters.min_p, filters.temperature);
            if xtc_acts {
                survivors.xtc(filters.xtc_threshold, filters.temperature);
            }
        }
        Order::MlxLm => {
            survivors.top_p(filters.top_p, 1.0);
            survivors.min_p(filters.min_p, 1.0);
            if xtc_acts {
                survivors.xtc(filters.xtc_threshold, 1.0);
            }
            survivors.top_k(filters.top_k);
        }
    }
    survivors.finish(filters.temperature, sink);
    Ok(())
}

fn check<E: Value>(row: usize, values: &[E], extent: &Extent) -> Result<()> {
    if !extent.nan && extent.most.is_finite() {
        return Ok(());
    }
    let wrong = |value: &E| value.widen().is_nan() || value.widen() == f64::INFINITY;
    Err(match values.iter().position(wrong) {
        Some(id) => Error::Element {
            argument: "logits",
            place: format!("{row}, {id}"),
            found: values[id].widen().to_string(),
            legal: "finite or -inf",
        },
        None => Error::Element {
            argument: "logits",
            place: row.to_string(),
            found: "-inf everywhere".into(),
            legal: "finite somewhere: no token can be drawn",
        },
    })
}

/// All mass on the first of the largest.
fn greedy<E: Value>(values: &[E], most: f64, sink: Sink<'_>) {
    let first = values
        .iter()
        .position(|value| value.widen() == most)
        .unwrap_or(0);
    match sink {
        Sink::Logprobs(out) => {
            out.fill(f64::NEG_INFINITY);
            out[first] = 0.0;
        }
        Sink::Draw { token, logprob, .. } => (*token, *logprob) = (first as i64, 0.0),
    }
}

/// The tokens that are left: the whole row, or a list.
struct Survivors<'a, E> {
    row: &'a [E],
    listed: bool,
    extent: Extent,
    list: &'a mut List,
    spare: &'a mut List,
    candidates: &'a mut Vec<Candidate>,
    halves: &'a mut Vec<Candidate>,
    sums: &'a mut Vec<f64>,
}

/// Evaluates an expression with the survivors as the source that they are.
macro_rules! with_source {
    ($survivors:ident, $source:ident => $body:expr) => {
        if $survivors.listed {
            let $source = Source {
                values: $survivors.list.values(),
                ids: Some($survivors.list.ids()),
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

impl<E: Value> Survivors<'_, E> {
    fn weight(&self, temperature: f64) -> Weight {
        Weight {
            most: self.extent.most,
            temperature,
        }
    }

    /// What the last filter wrote into the spare list is what is left.
    fn take_spare(&mut self) {
        std::mem::swap(self.list, self.spare);
        self.listed = true;
    }

    fn top_k(&mut self, k: usize) {
        if k == 0 {
            return;
        }
        with_source!(self, source => {
            match top_k(source.values, k, self.candidates) {
                Some(cut) => self.spare.cut(source, cut),
                None => return,
            }
        });
        self.take_spare();
    }

    fn top_p(&mut self, p: f64, temperature: f64) {
        if p == 1.0 {
            return;
        }
        if self.listed {
            self.extent = extent(self.list.values());
        }
        let weight = self.weight(temperature);
        with_source!(self, source => {
            let work = (&mut *self.candidates, &mut *self.halves, &mut *self.sums);
            match top_p(source.values, &self.extent, weight, p, work) {
                Some(cut) => self.spare.cut(source, cut),
                None => return,
            }
        });
        self.take_spare();
    }

    fn min_p(&mut self, p: f64, temperature: f64) {
        if p == 0.0 {
            return;
        }
        let keep = ExponentAtLeast(self.weight(temperature), ln(p));
        with_source!(self, source => self.spare.keep(source, keep));
        self.take_spare();
    }

    fn xtc(&mut self, threshold: f64, temperature: f64) {
        let weight = self.weight(temperature);
        let least = with_source!(self, source => {
            let total = weight.block_sums(source.values, self.sums);
            weight.least_above(source.values, threshold * total)
        });
        if least >= 1.0 {
            return; // none is above, or only the likeliest: the least likely of one stays
        }
        with_source!(self, source => self.spare.keep(source, WeightAtMost(weight, least)));
        self.take_spare();
        self.extent = extent(self.list.values());
    }

    fn finish(self, temperature: f64, sink: Sink<'_>) {
        let weight = self.weight(temperature);
        with_source!(self, source => {
            let total = weight.block_sums(source.values, self.sums);
            let log_total = ln(total);
            match sink {
                Sink::Logprobs(out) => {
                    if source.ids.is_some() {
                        out.fill(f64::NEG_INFINITY);
                    }
                    for (position, value) in source.values.iter().enumerate() {
                        let id = source.id(position) as usize;
                        out[id] = weight.exponent_of(value.widen()) - log_total;
                    }
                }
                Sink::Draw { uniform, token, logprob } => {
                    let position = draw(source.values, weight, self.sums, uniform * total);
                    *token = i64::from(source.id(position));
                    *logprob = weight.exponent_of(source.values[position].widen()) - log_total;
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
    let fallback = || sums.iter().rposition(|&sum| sum > 0.0).unwrap_or(0);
    let start = reached.unwrap_or_else(fallback) * BLOCK;
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
