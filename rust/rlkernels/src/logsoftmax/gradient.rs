//! The gradient for the logits, `(Σ g·(onehot − p) − g_H·p·(log p + H)) / τ`, in one pass from logits to result.

use std::f64::consts::LN_2;

use super::format::Vectors;
use super::forward::{CHUNK, FEW_ROWS, PARALLEL, SEGMENT, few_rows};
use super::ids::Ids;
use super::row::{Row, exp, reals, slow_terms};
use super::scan::{Constants, Scale, segment, term, two_to};
use crate::double::Sum;
use crate::isa::{F32_LANES, F64_LANES, Kernel, Lanes, Simd, dispatch};
use crate::math::exp64;
use crate::{Float, parallel};

/// The upstream gradients of one row, divided by the temperature.
#[derive(Clone, Copy)]
struct Upstream {
    /// The sum over the row's tokens.
    logprob: f64,
    entropy: f64,
}

/// A row's tokens with the gradients that come from their log-probabilities.
#[derive(Clone, Copy)]
struct Chosen<'a, T> {
    ids: Ids<'a>,
    grads: &'a [T],
    temperature: f64,
}

impl<T: Float> Chosen<'_, T> {
    /// What comes from the tokens for which `of` is true, divided by the temperature.
    #[inline(always)]
    fn sum(&self, of: impl Fn(i64) -> bool) -> f64 {
        if let (&[id], &[grad]) = (self.ids.tokens, self.grads) {
            let counts = of(id) && !self.ids.is_ignored(id);
            return if counts {
                grad.widen() / self.temperature
            } else {
                0.0
            };
        }
        let mut sum = Sum::default();
        for (&id, &grad) in self.ids.tokens.iter().zip(self.grads) {
            if of(id) && !self.ids.is_ignored(id) {
                sum.add(grad.widen() / self.temperature);
            }
        }
        sum.value()
    }

    /// What comes from the row; nothing where all of its tokens are ignored.
    #[inline(always)]
    fn upstream(&self, entropy: Option<&T>) -> Upstream {
        let entropy = entropy.map_or(0.0, |grad| grad.widen() / self.temperature);
        Upstream {
            logprob: self.sum(|_| true),
            entropy: if self.ids.all_ignored() { 0.0 } else { entropy },
        }
    }

    /// Whether every gradient is 0, so that the row need not be read.
    fn is_zero(&self, upstream: Upstream) -> bool {
        let mut tokens = self.ids.tokens.iter().zip(self.grads);
        upstream.entropy == 0.0
            && tokens.all(|(&id, &grad)| self.ids.is_ignored(id) || grad.widen() == 0.0)
    }

    /// Writes the gradients of the chosen tokens among `words`, of which the first is token `first`.
    #[inline(always)]
    fn write<F: Vectors, S: Simd>(
        &self,
        s: S,
        words: &[F::Word],
        first: usize,
        row: &Row,
        upstream: Upstream,
        out: &mut [F::Word],
    ) {
        for &id in self.ids.tokens {
            if self.ids.is_ignored(id) {
                continue;
            }
            let place = (id as usize).checked_sub(first);
            if let Some(place) = place.filter(|&place| place < words.len()) {
                let own = self.sum(|other| other == id);
                out[place] = chosen::<F, S>(s, words[place], row, own, upstream, self.temperature);
            }
        }
    }
}

/// The row's gradient apart from the chosen tokens: p·(constant + slope·(x − M)).
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
    if line.constant == 0.0 && line.slope == 0.0 {
        out.fill(F::word(0.0)); // the gradients of the row's tokens cancel
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

/// A chosen token's gradient, in `f64`; `own` of the upstream gradient is its own.
#[inline(always)]
fn chosen<F: Vectors, S: Simd>(
    s: S,
    logit: F::Word,
    row: &Row,
    own: f64,
    upstream: Upstream,
    temperature: f64,
) -> F::Word {
    let logprob = row.logprob(F::real(logit), temperature);
    let p = exp(s, logprob);
    if !(upstream.logprob.is_finite() && upstream.entropy.is_finite()) {
        return F::word(f64::NAN);
    }
    let mut value = own * (1.0 - p) - (upstream.logprob - own) * p;
    if upstream.entropy != 0.0 && p != 0.0 {
        value -= upstream.entropy * p * (logprob + row.entropy);
    }
    F::word(value)
}

/// Consecutive rows.
struct Rows<'a, F: Vectors> {
    logits: &'a [F::Word],
    ids: Ids<'a>,
    grads: &'a [F::Result],
    entropies: &'a [F::Result],
    vocabulary: usize,
    scale: &'a Scale,
    out: &'a mut [F::Word],
}

/// The tokens of a row.
fn of_row<'a, T>(ids: Ids<'a>, grads: &'a [T], temperature: f64, row: usize) -> Chosen<'a, T> {
    let ids = ids.row(row);
    Chosen {
        ids,
        grads: &grads[row * ids.per_row..(row + 1) * ids.per_row],
        temperature,
    }
}

impl<F: Vectors> Kernel for Rows<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut parts = Vec::with_capacity(self.vocabulary.div_ceil(SEGMENT));
        let temperature = self.scale.temperature;
        for i in 0..self.ids.rows() {
            let chosen = of_row(self.ids, self.grads, temperature, i);
            let upstream = chosen.upstream(self.entropies.get(i));
            let here = i * self.vocabulary..(i + 1) * self.vocabulary;
            let (words, out) = (&self.logits[here.clone()], &mut self.out[here]);
            if chosen.is_zero(upstream) {
                out.fill(F::word(0.0));
                continue;
            }
            parts.clear();
            for words in words.chunks(SEGMENT) {
                parts.push(segment::<F, S, true>(s, words, self.scale));
            }
            let row = Row::new::<F, S, true>(s, words, &parts, self.scale);
            slope::<F, S>(s, words, &row, upstream, self.scale, out);
            chosen.write::<F, S>(s, words, 0, &row, upstream, out);
        }
    }
}

/// A segment of a row.
struct Part<'a, F: Vectors> {
    words: &'a [F::Word],
    row: &'a Row,
    chosen: Chosen<'a, F::Result>,
    upstream: Upstream,
    scale: &'a Scale,
    /// The token of the segment's first logit.
    first: usize,
    out: &'a mut [F::Word],
}

impl<F: Vectors> Kernel for Part<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let upstream = self.upstream;
        if self.chosen.is_zero(upstream) {
            self.out.fill(F::word(0.0));
            return;
        }
        let (words, row, scale) = (self.words, self.row, self.scale);
        slope::<F, S>(s, words, row, upstream, scale, self.out);
        self.chosen
            .write::<F, S>(s, words, self.first, row, upstream, self.out);
    }
}

/// The gradient; everything has been checked. `entropies` is empty where no gradient comes from the entropy.
pub(super) fn run<F: Vectors>(
    logits: &[F::Word],
    ids: Ids<'_>,
    grads: &[F::Result],
    entropies: &[F::Result],
    vocabulary: usize,
    temperature: f64,
    out: &mut [F::Word],
) {
    if ids.tokens.is_empty() {
        return;
    }
    let scale = &Scale::new::<F>(temperature);
    if ids.rows() < FEW_ROWS && vocabulary > SEGMENT {
        let rows = few_rows::<F, true>(logits, vocabulary, scale);
        let segments = out
            .chunks_exact_mut(vocabulary)
            .enumerate()
            .flat_map(|(i, out)| {
                let words = &logits[i * vocabulary..(i + 1) * vocabulary];
                let row = &rows[i];
                let chosen = of_row(ids, grads, scale.temperature, i);
                let upstream = chosen.upstream(entropies.get(i));
                let parts = words
                    .chunks(SEGMENT)
                    .zip(out.chunks_mut(SEGMENT))
                    .enumerate();
                parts.map(move |(number, (words, out))| Part::<F> {
                    words,
                    row,
                    chosen,
                    upstream,
                    scale,
                    first: number * SEGMENT,
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
        .zip(ids.chunks(rows).zip(grads.chunks(rows * ids.per_row)))
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
