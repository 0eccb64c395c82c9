//! Log-probabilities and entropies, with rows or the segments of a few long rows shared among the threads.

use super::format::Vectors;
use super::ids::Ids;
use super::row::Row;
use super::scan::{Scale, Segment, segment};
use crate::isa::{Kernel, Simd, dispatch};
use crate::{Float, parallel};

/// Logits of a segment, the part of a row with sums of its own. Fixed, so the number of threads changes no bit.
pub(super) const SEGMENT: usize = 32_768;
/// With fewer rows than this the segments of a row are shared among the threads.
pub(super) const FEW_ROWS: usize = 8;
/// About the logits of a chunk, the unit of work of a thread where rows are short.
pub(super) const CHUNK: usize = 65_536;
/// The fewest logits for which threads are used: waking them costs up to 20 µs, in which one thread does 10^5.
pub(super) const PARALLEL: usize = 200_000;

/// Log-probabilities and, where wanted, entropies; everything has been checked.
pub(super) fn run<F: Vectors>(
    logits: &[F::Word],
    ids: Ids<'_>,
    vocabulary: usize,
    temperature: f64,
    logprobs: &mut [F::Result],
    entropy: Option<&mut [F::Result]>,
) {
    let scale = Scale::new::<F>(temperature);
    match entropy {
        None => shared::<F, false>(logits, ids, vocabulary, &scale, logprobs, &mut []),
        Some(entropy) => shared::<F, true>(logits, ids, vocabulary, &scale, logprobs, entropy),
    }
}

/// Consecutive rows.
struct Rows<'a, F: Vectors, const ENTROPY: bool> {
    logits: &'a [F::Word],
    ids: Ids<'a>,
    vocabulary: usize,
    scale: &'a Scale,
    logprobs: &'a mut [F::Result],
    entropy: &'a mut [F::Result],
}

impl<F: Vectors, const ENTROPY: bool> Kernel for Rows<'_, F, ENTROPY> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut parts = Vec::with_capacity(self.vocabulary.div_ceil(SEGMENT));
        for (i, words) in self.logits.chunks_exact(self.vocabulary).enumerate() {
            let ids = self.ids.row(i);
            let mut row = Row::IGNORED;
            if !ids.all_ignored() {
                parts.clear();
                for words in words.chunks(SEGMENT) {
                    parts.push(segment::<F, S, ENTROPY>(s, words, self.scale));
                }
                row = Row::new::<F, S, ENTROPY>(s, words, &parts, self.scale);
            }
            let out = &mut self.logprobs[i * ids.per_row..(i + 1) * ids.per_row];
            write::<F>(&row, words, ids, self.scale, out);
            if ENTROPY {
                self.entropy[i] = F::Result::narrow(row.entropy);
            }
        }
    }
}

/// Writes the log-probabilities of a row's tokens, +0 for what is ignored.
#[inline(always)]
fn write<F: Vectors>(
    row: &Row,
    words: &[F::Word],
    ids: Ids<'_>,
    scale: &Scale,
    out: &mut [F::Result],
) {
    for (to, &id) in out.iter_mut().zip(ids.tokens) {
        *to = F::Result::narrow(if ids.is_ignored(id) {
            0.0
        } else {
            row.logprob(F::real(words[id as usize]), scale.temperature)
        });
    }
}

/// One segment of a row.
struct Part<'a, F: Vectors, const ENTROPY: bool> {
    words: &'a [F::Word],
    scale: &'a Scale,
}

impl<F: Vectors, const ENTROPY: bool> Kernel for Part<'_, F, ENTROPY> {
    type Output = Segment;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Segment {
        segment::<F, S, ENTROPY>(s, self.words, self.scale)
    }
}

/// A row whose segments have been summed.
struct Whole<'a, F: Vectors, const ENTROPY: bool> {
    words: &'a [F::Word],
    parts: &'a [Segment],
    scale: &'a Scale,
}

impl<F: Vectors, const ENTROPY: bool> Kernel for Whole<'_, F, ENTROPY> {
    type Output = Row;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Row {
        Row::new::<F, S, ENTROPY>(s, self.words, self.parts, self.scale)
    }
}

/// The results of a few long rows, whose segments are shared among the threads.
pub(super) fn few_rows<F: Vectors, const ENTROPY: bool>(
    logits: &[F::Word],
    vocabulary: usize,
    scale: &Scale,
) -> Vec<Row> {
    let mut parts = vec![Segment::EMPTY; logits.len() / vocabulary * vocabulary.div_ceil(SEGMENT)];
    let segments = logits
        .chunks_exact(vocabulary)
        .flat_map(|words| words.chunks(SEGMENT));
    parallel::for_each(
        logits.len() >= PARALLEL,
        segments.zip(&mut parts),
        |(words, part)| *part = dispatch(Part::<F, ENTROPY> { words, scale }),
    );
    logits
        .chunks_exact(vocabulary)
        .zip(parts.chunks_exact(vocabulary.div_ceil(SEGMENT)))
        .map(|(words, parts)| {
            dispatch(Whole::<F, ENTROPY> {
                words,
                parts,
                scale,
            })
        })
        .collect()
}

fn shared<F: Vectors, const ENTROPY: bool>(
    logits: &[F::Word],
    ids: Ids<'_>,
    vocabulary: usize,
    scale: &Scale,
    logprobs: &mut [F::Result],
    entropy: &mut [F::Result],
) {
    if ids.tokens.is_empty() {
        return;
    }
    if ids.rows() < FEW_ROWS && vocabulary > SEGMENT {
        let rows = few_rows::<F, ENTROPY>(logits, vocabulary, scale);
        let outs = logprobs.chunks_exact_mut(ids.per_row);
        for (i, (row, out)) in rows.iter().zip(outs).enumerate() {
            let (words, ids) = (&logits[i * vocabulary..(i + 1) * vocabulary], ids.row(i));
            let row = if ids.all_ignored() {
                &Row::IGNORED
            } else {
                row
            };
            write::<F>(row, words, ids, scale, out);
            if ENTROPY {
                entropy[i] = F::Result::narrow(row.entropy);
            }
        }
        return;
    }
    let rows = (CHUNK / vocabulary).max(1);
    let mut entropies = entropy.chunks_mut(rows);
    let parts = logits
        .chunks(rows * vocabulary)
        .zip(ids.chunks(rows))
        .zip(logprobs.chunks_mut(rows * ids.per_row))
        .map(|((logits, ids), logprobs)| Rows::<F, ENTROPY> {
            logits,
            ids,
            vocabulary,
            scale,
            logprobs,
            entropy: entropies.next().unwrap_or(&mut []),
        });
    parallel::for_each(logits.len() >= PARALLEL, parts, dispatch);
}
