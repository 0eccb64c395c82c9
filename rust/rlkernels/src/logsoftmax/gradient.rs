//! The gradient for the logits, `(g·(onehot − p) − g_H·p·(log p + H)) / τ`, in one pass from logits to result.

use std::f64::consts::LN_2;

use super::format::Vectors;
use super::forward::{CHUNK, FEW_ROWS, PARALLEL, SEGMENT, few_rows};
use super::row::{Row, exp, reals, slow_terms};
use super::scan::{Constants, Scale, segment, term, two_to};
use crate::isa::{F32_LANES, F64_LANES, Kernel, Lanes, Simd, dispatch};
use crate::math::exp64;
use crate::{Float, parallel};

/// The upstream gradients of one row, divided by the temperature.
#[derive(Clone, Copy)]
struct Upstream {
    logprob: f64,
    entropy: f64,
}

impl Upstream {
    fn is_zero(self) -> bool {
        self.logprob == 0.0 && self.entropy == 0.0
    }
}

/// The row's gradient apart from the chosen token: p·(constant + slope·(x − M)).
#[derive(Clone, Copy)]
struct Line {
    constant: f64,
    slope: f64,
}

impl Line {
    /// log p + H = (x − M)/τ − log Σ + H.
    fn new(row: &Row, upstream: Upstream, temperature: f64) -> Self {
        let entropy = upstream.entropy;
        if entropy == 0.0 {
            return Self {
                constant: -upstream.logprob,
                slope: 0.0,
            };
        }
        Self {
            constant: -(upstream.logprob + entropy * (row.entropy - row.log_sum)),
            slope: -entropy / temperature,
        }
    }
}

/// Writes the gradient of a part of a row; that of the chosen token is written afterwards.
#[inline(always)]
fn slope<F: Vectors, S: Simd>(
    s: S,
    words: &[F::Word],
    row: &Row,
    upstream: Upstream,
    scale: &Scale,
    out: &mut [F::Word],
) {
    let line = Line::new(row, upstream, scale.temperature);
    if !(row.max.is_finite() && line.constant.is_finite() && line.slope.is_finite()) {
        out.fill(F::word(f64::NAN));
        return;
    }
    if row.reference.is_nan() {
        slow::<F, S>(s, words, row, line, scale.temperature, out);
        return;
    }
    if line.slope == 0.0 {
        fast::<F, S, false>(s, words, row, line, scale, out);
    } else {
        fast::<F, S, true>(s, words, row, line, scale, out);
    }
}

/// The exponent of the larger of two numbers.
fn exponent(a: f64, b: f64) -> f64 {
    let largest = if a.abs() > b.abs() { a } else { b };
    (largest.to_bits() >> 52 & 0x7ff) as f64 - 1023.0
}

#[inline(always)]
fn fast<F: Vectors, S: Simd, const ENTROPY: bool>(
    s: S,
    words: &[F::Word],
    row: &Row,
    line: Line,
    scale: &Scale,
    out: &mut [F::Word],
) {
    // p = 2^(x·c − B) · share. The magnitude of the line goes into the powers of two, so that small products round to
    // subnormals and 0 as they should.
    let share = exp(
        s,
        -LN_2 * scale.above(row.max, row.reference, true) - row.log_sum,
    );
    let (constant, slope) = (line.constant * share, line.slope * share);
    let reach = 100.0 * scale.temperature; // logits farther below M are negligible
    let digits = f64::from(F::MANTISSA) + 1.0;
    let shift = (exponent(constant, slope * reach) + digits).clamp(-1000.0, F::BIAS - 7.0);
    let (constant, slope) = (constant * two_to(-shift), slope * two_to(-shift));
    let reference = (row.reference, row.max);
    let depth = shift + F::BIAS - 2.0; // the smallest power of two of a lane
    let constants = Constants::new::<F, S>(s, scale, reference, shift, depth);
    let (constant, slope) = (F::splat(s, constant), F::splat(s, slope));
    let zero = F::splat(s, 0.0);
    let mut padded = [F::LOWEST; F32_LANES];
    let whole = words.len() / F::LANES * F::LANES;
    let (words, rest) = words.split_at(whole);
    let (out, out_rest) = out.split_at_mut(whole);
    padded[..rest.len()].copy_from_slice(rest);
    let mut last = padded;
    for (words, out) in [(words, out), (&padded[..F::LANES], &mut last[..F::LANES])] {
        for (words, out) in words
            .chunks_exact(F::LANES)
            .zip(out.chunks_exact_mut(F::LANES))
        {
            let x = F::load(s, words);
            let term = term::<F, S, true>(s, x, &constants);
            let e = term.mantissa * term.power;
            let value = if ENTROPY {
                e * term.distance.fma(slope, constant)
            } else {
                e * constant
            };
            F::store(
                s,
                F::Vector::<S>::select(constants.too_low(x), zero, value),
                out,
            );
        }
    }
    out_rest.copy_from_slice(&last[..out_rest.len()]);
}

#[inline(always)]
fn slow<F: Vectors, S: Simd>(
    s: S,
    words: &[F::Word],
    row: &Row,
    line: Line,
    temperature: f64,
    out: &mut [F::Word],
) {
    let share = exp64(s, s.f64(-row.log_sum));
    let (constant, slope) = (s.f64(line.constant), s.f64(line.slope * temperature));
    let zero = s.f64(0.0);
    for (words, out) in words.chunks(F64_LANES).zip(out.chunks_mut(F64_LANES)) {
        let (e, q) = slow_terms(s, &reals::<F>(words), row.max, temperature);
        let value = e * share * q.fma(slope, constant);
        let values = S::F64::select(e.eq(zero), zero, value).array();
        for (out, value) in out.iter_mut().zip(values) {
            *out = F::word(value);
        }
    }
}

/// The chosen token's gradient, in `f64`.
#[inline(always)]
fn chosen<F: Vectors, S: Simd>(
    s: S,
    logit: F::Word,
    row: &Row,
    upstream: Upstream,
    temperature: f64,
) -> F::Word {
    let logprob = row.logprob(F::real(logit), temperature);
    let p = exp(s, logprob);
    if !(upstream.logprob.is_finite() && upstream.entropy.is_finite()) {
        return F::word(f64::NAN);
    }
    let mut value = upstream.logprob * (1.0 - p);
    if upstream.entropy != 0.0 && p != 0.0 {
        value -= upstream.entropy * p * (logprob + row.entropy);
    }
    F::word(value)
}

/// Consecutive rows.
struct Rows<'a, F: Vectors> {
    logits: &'a [F::Word],
    ids: &'a [i64],
    grads: &'a [F::Result],
    entropies: &'a [F::Result],
    vocabulary: usize,
    scale: &'a Scale,
    out: &'a mut [F::Word],
}

impl<F: Vectors> Rows<'_, F> {
    fn upstream(&self, i: usize) -> Upstream {
        upstream::<F>(self.grads, self.entropies, i, self.scale)
    }
}

fn upstream<F: Vectors>(
    grads: &[F::Result],
    entropies: &[F::Result],
    i: usize,
    scale: &Scale,
) -> Upstream {
    Upstream {
        logprob: grads[i].widen() / scale.temperature,
        entropy: entropies
            .get(i)
            .map_or(0.0, |grad| grad.widen() / scale.temperature),
    }
}

impl<F: Vectors> Kernel for Rows<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut parts = Vec::with_capacity(self.vocabulary.div_ceil(SEGMENT));
        for i in 0..self.ids.len() {
            let upstream = self.upstream(i);
            let here = i * self.vocabulary..(i + 1) * self.vocabulary;
            let (words, out) = (&self.logits[here.clone()], &mut self.out[here]);
            if upstream.is_zero() {
                out.fill(F::word(0.0));
                continue;
            }
            parts.clear();
            for words in words.chunks(SEGMENT) {
                parts.push(segment::<F, S, true>(s, words, self.scale));
            }
            let row = Row::new::<F, S, true>(s, words, &parts, self.scale);
            slope::<F, S>(s, words, &row, upstream, self.scale, out);
            let id = self.ids[i] as usize;
            out[id] = chosen::<F, S>(s, words[id], &row, upstream, self.scale.temperature);
        }
    }
}

/// A segment of a row.
struct Part<'a, F: Vectors> {
    words: &'a [F::Word],
    row: &'a Row,
    upstream: Upstream,
    scale: &'a Scale,
    /// The chosen token, where it lies in this segment.
    id: Option<usize>,
    out: &'a mut [F::Word],
}

impl<F: Vectors> Kernel for Part<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.upstream.is_zero() {
            self.out.fill(F::word(0.0));
            return;
        }
        slope::<F, S>(s, self.words, self.row, self.upstream, self.scale, self.out);
        if let Some(id) = self.id {
            let temperature = self.scale.temperature;
            self.out[id] = chosen::<F, S>(s, self.words[id], self.row, self.upstream, temperature);
        }
    }
}

/// The gradient; everything has been checked. `entropies` is empty where no gradient comes from the entropy.
pub(super) fn run<F: Vectors>(
    logits: &[F::Word],
    ids: &[i64],
    grads: &[F::Result],
    entropies: &[F::Result],
    vocabulary: usize,
    temperature: f64,
    out: &mut [F::Word],
) {
    if ids.is_empty() {
        return;
    }
    let scale = &Scale::new::<F>(temperature);
    if ids.len() < FEW_ROWS && vocabulary > SEGMENT {
        let rows = few_rows::<F, true>(logits, vocabulary, scale);
        let segments = out
            .chunks_exact_mut(vocabulary)
            .enumerate()
            .flat_map(|(i, out)| {
                let words = &logits[i * vocabulary..(i + 1) * vocabulary];
                let (id, row) = (ids[i] as usize, &rows[i]);
                let upstream = upstream::<F>(grads, entropies, i, scale);
                let parts = words
                    .chunks(SEGMENT)
                    .zip(out.chunks_mut(SEGMENT))
                    .enumerate();
                parts.map(move |(number, (words, out))| Part::<F> {
                    words,
                    row,
                    upstream,
                    scale,
                    id: id
                        .checked_sub(number * SEGMENT)
                        .filter(|&id| id < words.len()),
                    out,
                })
            });
        parallel::for_each(logits.len() >= PARALLEL, segments, dispatch);
        return;
    }
    let rows = (CHUNK / vocabulary).max(1);
    let mut entropies = entropies.chunks(rows);
    let parts = logits
        .chunks(rows * vocabulary)
        .zip(out.chunks_mut(rows * vocabulary))
        .zip(ids.chunks(rows).zip(grads.chunks(rows)))
        .map(|((logits, out), (ids, grads))| Rows::<F> {
            logits,
            ids,
            grads,
            entropies: entropies.next().unwrap_or(&[]),
            vocabulary,
            scale,
            out,
        });
    parallel::for_each(logits.len() >= PARALLEL, parts, dispatch);
}
