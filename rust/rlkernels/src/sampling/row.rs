//! One row: validation, penalty, filters in their order, and the draw or the log-probabilities of the kept tokens.

use std::cell::RefCell;

use super::filters::{Filters, Order};
use super::logits::{Logits, Value};
use super::scan::{Extent, Scan};
use super::survivors::{Sink, Survivors, Work};
use crate::half::{from_bfloat, from_half};
use crate::{Error, Float, Result};

/// Scratch memory of a row. It grows to the largest row that a thread has seen and is used again.
#[derive(Default)]
pub(super) struct Scratch {
    singles: Vec<f32>,
    doubles: Vec<f64>,
    ids: Vec<i64>,
    work: Work,
}

/// A row of logits with what belongs to it.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) number: usize,
    pub(super) logits: Logits<'a>,
    /// Read where the repetition penalty acts; else empty, as the generated tokens are where no penalty counts them.
    pub(super) history: &'a [i64],
    pub(super) generated: &'a [i64],
    pub(super) bias: &'a [f64],
    pub(super) xtc_acts: bool,
    pub(super) xtc_special_tokens: &'a [i64],
}

/// Calls `body` with this thread's scratch memory.
pub(super) fn with_scratch<T>(body: impl FnOnce(&mut Scratch) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => body(&mut scratch),
        Err(_) => body(&mut Scratch::default()), // a row within a row: does not happen, and would be correct
    })
}

pub(super) fn run<T: Float>(
    row: Row<'_>,
    filters: &Filters,
    scratch: &mut Scratch,
    sink: Sink<'_, T>,
) -> Result<()> {
    let Scratch {
        singles,
        doubles,
        ids,
        work,
    } = scratch;
    if !(row.history.is_empty() && row.generated.is_empty() && row.bias.is_empty()) {
        row.logits.widen_into(doubles);
        penalise(doubles, &row, filters, ids);
        return process(row, &doubles[..], filters, work, sink);
    }
    match row.logits {
        Logits::F32(values) => process(row, values, filters, work, sink),
        Logits::F64(values) => process(row, values, filters, work, sink),
        Logits::F16(bits) | Logits::Bf16(bits) => {
            let single = if matches!(row.logits, Logits::F16(_)) {
                from_half
            } else {
                from_bfloat
            };
            singles.clear();
            singles.extend(bits.iter().map(|&b| single(b)));
            process(row, &singles[..], filters, work, sink)
        }
    }
}

/// Adds the bias, penalises each token of the history once, and each generated token as often as it is there.
fn penalise(values: &mut [f64], row: &Row<'_>, filters: &Filters, ids: &mut Vec<i64>) {
    for (value, bias) in values.iter_mut().zip(row.bias) {
        *value += bias;
    }
    let penalty = filters.repetition_penalty;
    for (id, _) in counted(row.history, ids) {
        let logit = values[id];
        values[id] = if logit > 0.0 {
            logit / penalty
        } else {
            logit * penalty
        };
    }
    for (id, count) in counted(row.generated, ids) {
        values[id] -= filters.frequency_penalty * count as f64 + filters.presence_penalty;
    }
}

/// The ids that are not -1, each with the number of times that it is there.
fn counted<'a>(
    given: &[i64],
    sorted: &'a mut Vec<i64>,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    sorted.clear();
    sorted.extend(given.iter().filter(|&&id| id >= 0));
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a == b);
    runs.map(|run| (run[0] as usize, run.len()))
}

fn process<E: Scan, T: Float>(
    row: Row<'_>,
    values: &[E],
    filters: &Filters,
    work: &mut Work,
    sink: Sink<'_, T>,
) -> Result<()> {
    let extent = E::extent(values);
    check(row.number, values, &extent)?;
    if filters.temperature == 0.0 {
        greedy(values, extent.most, sink);
        return Ok(());
    }
    let mut survivors = Survivors::new(values, extent, work);
    match filters.order {
        Order::Hf => {
            let (least, heat) = (filters.min_tokens_to_keep, filters.temperature);
            if filters.top_k > 0 {
                survivors.top_k(filters.top_k.max(least), filters.tied_of_top_k());
            }
            survivors.top_p(filters.top_p, least, filters.tied_of_top_p(), heat);
            survivors.min_p(filters.min_p, least, filters.tied_of_min_p(), heat);
            if row.xtc_acts {
                survivors.xtc(filters.xtc_threshold, row.xtc_special_tokens, heat);
            }
        }
        Order::MlxLm => {
            let least = filters.min_tokens_to_keep;
            survivors.top_p(filters.top_p, 1, filters.tied_of_top_p(), 1.0);
            survivors.min_p(filters.min_p, least, filters.tied_of_min_p(), 1.0);
            if row.xtc_acts {
                survivors.xtc(filters.xtc_threshold, row.xtc_special_tokens, 1.0);
            }
            survivors.top_k(filters.top_k, filters.tied_of_top_k());
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
fn greedy<E: Value, T: Float>(values: &[E], most: f64, sink: Sink<'_, T>) {
    let first = values
        .iter()
        .position(|value| value.widen() == most)
        .unwrap_or(0);
    match sink {
        Sink::Logprobs(out) => {
            out.fill(T::narrow(f64::NEG_INFINITY));
            out[first] = T::narrow(0.0);
        }
        Sink::Draw { token, logprob, .. } => (*token, *logprob) = (first as i64, 0.0),
    }
}
