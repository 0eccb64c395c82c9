//! One row: validation, penalty, filters in their order, and the draw or the log-probabilities of the kept tokens.

use super::filters::{Filters, Order};
use super::logits::{Logits, Value};
use super::scan::{Extent, Scan};
use super::survivors::{Sink, Survivors, Work};
use crate::half::{from_bfloat, from_half};
use crate::{Error, Float, Result};

/// Scratch memory of a row. It grows to the largest row that its thread sees in a call.
#[derive(Default)]
pub(super) struct Scratch {
    singles: Vec<f32>,
    doubles: Vec<f64>,
    ids: Vec<i64>,
    work: Work,
}

impl Scratch {
    /// The memory that it holds.
    pub(super) fn bytes(&self) -> usize {
        4 * self.singles.capacity()
            + 8 * (self.doubles.capacity() + self.ids.capacity())
            + self.work.bytes()
    }
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
        for stage in STAGES {
            stage(doubles, &row, filters, ids);
        }
        return process(row, &doubles[..], filters, work, sink)
            .map_err(|error| blamed(error, &row, filters));
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

/// What changes the logits of a row before the filters; the list is memory for ids.
type Stage = fn(&mut [f64], &Row<'_>, &Filters, &mut Vec<i64>);

/// In the order in which they act.
const STAGES: [Stage; 3] = [bias, repetition, counts];

/// Adds the bias.
fn bias(values: &mut [f64], row: &Row<'_>, _: &Filters, _: &mut Vec<i64>) {
    for (value, bias) in values.iter_mut().zip(row.bias) {
        *value += bias;
    }
}

/// Penalises each token of the history once.
fn repetition(values: &mut [f64], row: &Row<'_>, filters: &Filters, ids: &mut Vec<i64>) {
    let penalty = filters.repetition_penalty;
    for (id, _) in counted(row.history, ids) {
        let logit = values[id];
        values[id] = if logit > 0.0 {
            logit / penalty
        } else {
            logit * penalty
        };
    }
}

/// Penalises each generated token as often as it is there.
fn counts(values: &mut [f64], row: &Row<'_>, filters: &Filters, ids: &mut Vec<i64>) {
    for (id, count) in counted(row.generated, ids) {
        values[id] -= filters.frequency_penalty * count as f64 + filters.presence_penalty;
    }
}

/// The error of a row that the filters refuse: of the bias or the penalty that spoilt it, else of the logits themselves.
#[cold]
fn blamed(error: Error, row: &Row<'_>, filters: &Filters) -> Error {
    let (mut values, mut ids) = (Vec::new(), Vec::new());
    row.logits.widen_into(&mut values);
    if spoilt(&values).is_some() {
        return refused(row.number, &values[..]);
    }
    let of_counts = if filters.frequency_penalty == 0.0 {
        "presence_penalty"
    } else {
        "frequency_penalty"
    };
    for (stage, argument) in STAGES
        .into_iter()
        .zip(["logit_bias", "repetition_penalty", of_counts])
    {
        stage(&mut values, row, filters, &mut ids);
        if let Some(found) = spoilt(&values) {
            let row = row.number;
            return Error::Spoilt {
                argument,
                row,
                found,
            };
        }
    }
    error
}

/// What is wrong with logits, if anything is.
fn spoilt(values: &[f64]) -> Option<String> {
    let wrong = |value: &f64| value.is_nan() || *value == f64::INFINITY;
    if let Some(id) = values.iter().position(wrong) {
        return Some(format!("{} at token {id}", values[id]));
    }
    let possible = |value: &f64| *value > f64::NEG_INFINITY;
    (!values.iter().any(possible)).then(|| "-inf everywhere".into())
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
    Err(refused(row, values))
}

/// What is wrong with a row of logits in which something is.
fn refused<E: Value>(row: usize, values: &[E]) -> Error {
    let wrong = |value: &E| value.widen().is_nan() || value.widen() == f64::INFINITY;
    match values.iter().position(wrong) {
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
    }
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
