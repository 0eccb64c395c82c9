//! The next-token distribution after its filters, and draws from it by inverse transform.
//!
//! A filter acts on the distribution renormalised over the tokens that the filters before it kept. It keeps an interval of
//! the tokens from likely to unlikely, of equal ones those that [`Ties`] names, so it only searches for the interval's end
//! and sorts no row: top-k keeps the k best of a stream, top-p sums probabilities into buckets and searches one of them.
//!
//! Everything is computed in `f64`, whatever the logits' type. Sums run in a fixed order (blocks of 256 tokens in id order, eight
//! lanes in each), so the tokens are the same on every instruction set and with any number of threads.

mod buckets;
mod cut;
mod filters;
mod list;
mod logits;
mod passes;
mod row;
mod scan;
mod scratch;
mod select;
mod survivors;

pub use filters::{Filters, Order, Ties};
pub use logits::Logits;

use std::sync::{Mutex, PoisonError};

use crate::error::{at_most, same_length};
use crate::{Error, Float, Result, parallel};
use row::{Row, Scratch};
use scratch::Spare;
use survivors::Sink;

/// Logits of the rows that one thread takes at a time; smaller batches run on the calling thread. So many take 9 µs (top-k)
/// to 100 µs (top-p) on x86-64 with AVX-512, and waking a thread about 10.
const PARALLEL_LOGITS: usize = 1 << 15;

/// Rows of logits with what belongs to each row.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// `rows` times `vocabulary` logits, row after row: finite, or −inf for a token that cannot be drawn.
    pub logits: Logits<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Number of tokens of the vocabulary.
    pub vocabulary: usize,
    /// Ids of earlier tokens, the same number for each row, −1 for none; read where the repetition penalty acts.
    pub history: Option<&'a [i64]>,
    /// As `history`; read where the presence or the frequency penalty acts.
    pub generated: Option<&'a [i64]>,
    /// One number for each token of the vocabulary, finite or −inf, added to the logits of every row before all else.
    pub logit_bias: Option<&'a [f64]>,
    /// One coin in [0, 1) per row; read where XTC may act.
    pub xtc_coins: Option<&'a [f64]>,
    /// Ids that XTC never removes.
    pub xtc_special_tokens: &'a [i64],
}

/// The log-probabilities (rows × vocabulary) that the filters leave, normalised; −inf for removed tokens.
///
/// Computed in `f64`; an `f32` is the nearest value.
///
/// # Errors
/// A parameter outside its range, or one that an active filter needs and is missing; a NaN or +inf logit or a row
/// without a finite one, with its place; lengths that do not fit.
pub fn filtered_logprobs<T: Float>(
    batch: &Batch<'_>,
    filters: &Filters,
    out: &mut [T],
) -> Result<()> {
    batch.check(filters)?;
    let slots = batch.rows.saturating_mul(batch.vocabulary);
    same_length("out", out.len(), slots, "`logits`")?;
    let rows = batch.rows_per_part();
    let parts = out.chunks_mut((rows * batch.vocabulary).max(1));
    batch.for_each_row(filters, parts.map(Part::Logprobs))
}

/// The token of each row that its uniform draws, and its log-probability after all filters.
///
/// The token is the least k with `C_k` > u · `C_V`, C the running sum of the probabilities in id order: never a token of
/// probability 0, and for u = 0 the first one above it. At temperature 0 it is the lowest id of the maximum.
///
/// ```
/// use rlkernels::philox::Draw;
/// use rlkernels::sampling::{Batch, Filters, Logits, Order, sample_tokens};
///
/// let batch = Batch {
///     logits: Logits::F32(&[0.5, 2.0, -1.0, 1.5]),
///     rows: 1,
///     vocabulary: 4,
///     history: None,
///     generated: None,
///     logit_bias: None,
///     xtc_coins: None,
///     xtc_special_tokens: &[],
/// };
/// let filters = Filters { temperature: 0.7, top_p: 0.9, ..Filters::off(Order::Hf) };
/// let (uniform, _coin) = Draw { token: 0, sample: 0, prompt: 17, round: 1 }.numbers(42);
/// let (mut tokens, mut logprobs) = ([0], [0.0]);
/// sample_tokens(&batch, &filters, &[uniform], &mut tokens, &mut logprobs)?;
/// assert!([1, 3].contains(&tokens[0])); // 0.9 of the mass: logits 2.0 and 1.5
/// # Ok::<(), rlkernels::Error>(())
/// ```
///
/// # Errors
/// As [`filtered_logprobs`], and a uniform outside [0, 1).
pub fn sample_tokens(
    batch: &Batch<'_>,
    filters: &Filters,
    uniforms: &[f64],
    tokens: &mut [i64],
    logprobs: &mut [f64],
) -> Result<()> {
    batch.check(filters)?;
    let rows = "the rows of `logits`";
    same_length("uniforms", uniforms.len(), batch.rows, rows)?;
    same_length("tokens", tokens.len(), batch.rows, rows)?;
    same_length("logprobs", logprobs.len(), batch.rows, rows)?;
    in_unit_interval("uniforms", uniforms)?;
    let rows = batch.rows_per_part();
    let outs = tokens.chunks_mut(rows).zip(logprobs.chunks_mut(rows));
    let parts = uniforms.chunks(rows).zip(outs);
    let parts = parts.map(|(uniforms, (tokens, logprobs))| Part::Draws {
        uniforms,
        tokens,
        logprobs,
    });
    batch.for_each_row::<f64>(filters, parts)
}

/// The results of the rows that one thread takes at a time.
enum Part<'a, T> {
    Logprobs(&'a mut [T]),
    Draws {
        uniforms: &'a [f64],
        tokens: &'a mut [i64],
        logprobs: &'a mut [f64],
    },
}

impl<T: Float> Part<'_, T> {
    fn rows(&self, vocabulary: usize) -> usize {
        match self {
            Self::Logprobs(out) => out.len() / vocabulary,
            Self::Draws { uniforms, .. } => uniforms.len(),
        }
    }

    /// The result of the row of this index within the part.
    fn sink(&mut self, row: usize, vocabulary: usize) -> Sink<'_, T> {
        match self {
            Self::Logprobs(out) => Sink::Logprobs(&mut out[row * vocabulary..][..vocabulary]),
            Self::Draws {
                uniforms,
                tokens,
                logprobs,
            } => Sink::Draw {
                uniform: uniforms[row],
                token: &mut tokens[row],
                logprob: &mut logprobs[row],
            },
        }
    }
}

impl<'a> Batch<'a> {
    fn check(&self, filters: &Filters) -> Result<()> {
        filters.check()?;
        let slots = self.rows.saturating_mul(self.vocabulary);
        same_length("logits", self.logits.len(), slots, "rows times vocabulary")?;
        if self.rows > 0 && self.vocabulary == 0 {
            return Err(Error::Empty { argument: "logits" });
        }
        at_most("a row of logits", self.vocabulary, u32::MAX as usize)?;
        if filters.xtc_probability > 0.0 {
            let coins = self.xtc_coins.ok_or(Error::Missing {
                argument: "xtc_coin",
                because: "`xtc_probability` is above 0",
            })?;
            same_length("xtc_coin", coins.len(), self.rows, "the rows of `logits`")?;
            in_unit_interval("xtc_coin", coins)?;
        }
        if filters.penalises() {
            self.check_ids("history", self.history, "`repetition_penalty` is not 1")?;
        }
        if filters.counts() {
            let because = "`presence_penalty` or `frequency_penalty` is not 0";
            self.check_ids("generated", self.generated, because)?;
        }
        if let Some(bias) = self.logit_bias {
            let like = "the vocabulary of `logits`";
            same_length("logit_bias", bias.len(), self.vocabulary, like)?;
            let wrong = |bias: &f64| bias.is_nan() || *bias == f64::INFINITY;
            if let Some(id) = bias.iter().position(wrong) {
                return Err(Error::Element {
                    argument: "logit_bias",
                    place: id.to_string(),
                    found: bias[id].to_string(),
                    legal: "finite or -inf",
                });
            }
        }
        let outside = |&id: &i64| id < 0 || id >= self.vocabulary as i64;
        let special = self.xtc_special_tokens;
        special.iter().position(outside).map_or(Ok(()), |index| {
            Err(Error::Element {
                argument: "xtc_special_tokens",
                place: index.to_string(),
                found: special[index].to_string(),
                legal: "an id of the vocabulary",
            })
        })
    }

    fn check_ids(
        &self,
        argument: &'static str,
        ids: Option<&[i64]>,
        because: &'static str,
    ) -> Result<()> {
        let ids = ids.ok_or(Error::Missing { argument, because })?;
        let width = ids.len() / self.rows.max(1);
        same_length(argument, ids.len(), width * self.rows, "rows of ids")?;
        let wrong = |&id: &i64| id < -1 || id >= self.vocabulary as i64;
        ids.iter().position(wrong).map_or(Ok(()), |index| {
            Err(Error::Element {
                argument,
                place: format!("{}, {}", index / width, index % width),
                found: ids[index].to_string(),
                legal: "-1 (no token) or an id of the vocabulary",
            })
        })
    }

    /// The ids of a row, none where nothing reads them.
    fn ids_of(&self, row: usize, ids: Option<&'a [i64]>, read: bool) -> &'a [i64] {
        match ids {
            Some(ids) if read => {
                let width = ids.len() / self.rows;
                &ids[row * width..(row + 1) * width]
            }
            _ => &[],
        }
    }

    /// Rows that one thread works on at a time. Depends on the shape only, though no bit depends on it.
    fn rows_per_part(&self) -> usize {
        (PARALLEL_LOGITS / self.vocabulary.max(1)).max(1)
    }

    /// Runs the rows of every part into their sinks; of several wrong rows the first is reported.
    fn for_each_row<'s, T: Float>(
        &self,
        filters: &Filters,
        parts: impl Iterator<Item = Part<'s, T>>,
    ) -> Result<()> {
        let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        let spare = Spare::default();
        let several = self.rows > self.rows_per_part();
        parallel::for_each(several, parts.enumerate(), |(number, mut part)| {
            let first = number * self.rows_per_part();
            let error = spare.lend(|scratch| {
                (0..part.rows(self.vocabulary)).find_map(|index| {
                    let sink = part.sink(index, self.vocabulary);
                    let error = self.row(first + index, filters, scratch, sink).err()?;
                    Some((first + index, error))
                })
            });
            if let Some((row, error)) = error {
                let mut first = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|&(before, _)| row < before) {
                    *first = Some((row, error));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn row<T: Float>(
        &self,
        row: usize,
        filters: &Filters,
        scratch: &mut Scratch,
        sink: Sink<'_, T>,
    ) -> Result<()> {
        let from = row * self.vocabulary;
        let acts = filters.xtc_probability > 0.0
            && self
                .xtc_coins
                .is_some_and(|coins| coins[row] < filters.xtc_probability);
        let row = Row {
            number: row,
            logits: self.logits.slice(from..from + self.vocabulary),
            history: self.ids_of(row, self.history, filters.penalises()),
            generated: self.ids_of(row, self.generated, filters.counts()),
            bias: self.logit_bias.unwrap_or_default(),
            xtc_acts: acts,
            xtc_special_tokens: self.xtc_special_tokens,
        };
        row::run(row, filters, scratch, sink)
    }
}

fn in_unit_interval(argument: &'static str, numbers: &[f64]) -> Result<()> {
    let wrong = |number: &f64| !(0.0..1.0).contains(number);
    numbers.iter().position(wrong).map_or(Ok(()), |index| {
        Err(Error::Element {
            argument,
            place: index.to_string(),
            found: numbers[index].to_string(),
            legal: "in [0, 1)",
        })
    })
}
