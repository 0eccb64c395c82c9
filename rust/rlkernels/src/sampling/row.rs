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
    work: Work,
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
    row: usize,
    logits: Logits<'_>,
    history: &[i64],
    filters: &Filters,
    xtc_acts: bool,
    scratch: &mut Scratch,
    sink: Sink<'_, T>,
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
                from_half
            } else {
                from_bfloat
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
        Logits::F16(bits) => f64::from(from_half(bits[id])),
        Logits::Bf16(bits) => f64::from(from_bfloat(bits[id])),
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

fn process<E: Scan, T: Float>(
    row: usize,
    values: &[E],
    filters: &Filters,
    xtc_acts: bool,
    work: &mut Work,
    sink: Sink<'_, T>,
) -> Result<()> {
    let extent = E::extent(values);
    check(row, values, &extent)?;
    if filters.temperature == 0.0 {
        greedy(values, extent.most, sink);
        return Ok(());
    }
    let mut survivors = Survivors::new(values, extent, work);
    match filters.order {
        Order::Hf => {
            survivors.top_k(filters.top_k, filters.top_k_keeps_all_tied());
            survivors.top_p(filters.top_p, filters.tied_of_top_p(), filters.temperature);
            survivors.min_p(filters.min_p, filters.temperature);
            if xtc_acts {
                survivors.xtc(filters.xtc_threshold, filters.temperature);
            }
        }
        Order::MlxLm => {
            survivors.top_p(filters.top_p, filters.tied_of_top_p(), 1.0);
            survivors.min_p(filters.min_p, 1.0);
            if xtc_acts {
                survivors.xtc(filters.xtc_threshold, 1.0);
            }
            survivors.top_k(filters.top_k, filters.top_k_keeps_all_tied());
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
