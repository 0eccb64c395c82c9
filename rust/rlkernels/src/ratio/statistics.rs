//! Statistics of the importance ratios of a step, per token and per sequence.

use super::differences::{OLD, PARALLEL_SLOTS, POLICY};
use super::moments::{Moved, Raw, Tokens, Totals, Weighted};
use crate::chunks::{Chunks, Columns, count_chunks};
use crate::data::Data;
use crate::error::same_length;
use crate::isa::dispatch;
use crate::rows::{CountedRow, Rows};
use crate::{Error, Float, Result, parallel};

/// Eleven numbers about the log-ratios D of tokens or of sequences, r = exp(D).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// Mean of r.
    pub mean: f64,
    /// Greatest |D|.
    pub max_abs: f64,
    /// The 0.99 quantile of |D|, interpolated linearly.
    pub p99_abs: f64,
    /// Mean of k3(D) = r − 1 − D.
    pub k3: f64,
    /// χ²: mean of exp(2D) − 1.
    pub chi2: f64,
    /// (Σr)²/(n Σr²): the effective sample size over n; not clamped, and safe from overflow.
    pub ess_per_n: f64,
    /// Mean of exp|D|.
    pub mult_err: f64,
    /// Share of r below 1 − `ε_low`.
    pub outside_low: f64,
    /// Share of r above 1 + `ε_high`.
    pub outside_high: f64,
    /// Share of r below its bound with a negative advantage; `None` without advantages.
    pub clipped_low: Option<f64>,
    /// Share of r above its bound with a positive advantage; `None` without advantages.
    pub clipped_high: Option<f64>,
}

/// The statistics of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Of tokens.
    pub tokens: Moments,
    /// Of sequences with at least one token, D summed over each.
    pub sequences: Moments,
    /// Least ratio of a sequence.
    pub min_sequence_ratio: f64,
    /// Greatest ratio of a sequence.
    pub max_sequence_ratio: f64,
}

const NAMES: [[&str; 11]; 2] = [
    [
        "mean",
        "max_abs",
        "p99_abs",
        "k3",
        "chi2",
        "ess_per_n",
        "mult_err",
        "outside_low",
        "outside_high",
        "clipped_low",
        "clipped_high",
    ],
    [
        "seq_sum_mean",
        "seq_sum_max_abs",
        "seq_sum_p99_abs",
        "seq_sum_k3",
        "seq_sum_chi2",
        "seq_sum_ess_per_n",
        "seq_sum_mult_err",
        "seq_sum_outside_low",
        "seq_sum_outside_high",
        "seq_sum_clipped_low",
        "seq_sum_clipped_high",
    ],
];

impl Statistics {
    /// The statistics that are not `None`, by name.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let mut all = Vec::with_capacity(24);
        for (names, m) in NAMES.iter().zip([&self.tokens, &self.sequences]) {
            let values = [
                Some(m.mean),
                Some(m.max_abs),
                Some(m.p99_abs),
                Some(m.k3),
                Some(m.chi2),
                Some(m.ess_per_n),
                Some(m.mult_err),
                Some(m.outside_low),
                Some(m.outside_high),
                m.clipped_low,
                m.clipped_high,
            ];
            let given = names.iter().zip(values);
            all.extend(given.filter_map(|(&name, value)| value.map(|value| (name, value))));
        }
        all.push(("min_sequence_ratio", self.min_sequence_ratio));
        all.push(("max_sequence_ratio", self.max_sequence_ratio));
        all
    }
}

/// How far D = policy − behaviour has moved on tokens, samples from the behaviour policy; one pass over the data, then the
/// selection of the quantile.
///
/// `advantages`, one for every row, say what a clip would touch. The error of means is at most k · 2u times the mean of the
/// terms' absolute values, k = 4 for `f32` and 8 for `f64`; of `ess_per_n` four times that. Overflows give +inf. A NaN on a
/// token makes every number of tokens or sequences that it reaches NaN, shares aside. Sources: ESS, Kong (1992); k3,
/// Schulman (2020).
///
/// # Errors
/// No token at all, a negative or infinite ε, lengths that do not match; see [`Rows::check`].
pub fn ratio_statistics<T: Float>(
    policy: &[T],
    behaviour: &[T],
    epsilon_low: f64,
    epsilon_high: f64,
    advantages: Option<&[T]>,
    rows: &Rows<'_>,
) -> Result<Statistics> {
    same_length("behaviour", behaviour.len(), policy.len(), "`policy`")?;
    rows.check(policy.len())?;
    if let Some(advantages) = advantages {
        let count = rows.count();
        same_length(
            "advantages",
            advantages.len(),
            count,
            "the rows of `policy`",
        )?;
    }
    let bounds = (
        1.0 - epsilon::<T>("epsilon_low", epsilon_low)?,
        1.0 + epsilon::<T>("epsilon_high", epsilon_high)?,
    );
    let counted = rows.counted();
    let count: usize = counted.iter().map(|row| row.tokens).sum();
    if count == 0 {
        return Err(Error::NoToken);
    }
    let mut arrays: [&[T]; 2] = [&[]; 2];
    (arrays[POLICY], arrays[OLD]) = (policy, behaviour);
    let columns = Columns {
        arrays,
        mask: rows.mask(),
    };
    let signs: Option<Vec<f64>> =
        advantages.map(|values| values.iter().map(|value| value.widen()).collect());
    let shifted =
        |shift| sizes_and_moments(columns, &counted, signs.as_deref(), bounds, count, shift);
    let (tokens, ..) = finished(shifted, signs.is_some());

    // A sequence is a row of one token whose "policy" is the high part of its sum and whose "old" the negated low part:
    // the difference is the sum again.
    let sums = dispatch(Totals {
        columns,
        rows: &counted,
    });
    let some: Vec<usize> = (0..counted.len())
        .filter(|&row| counted[row].tokens > 0)
        .collect();
    let high: Vec<f64> = some.iter().map(|&row| sums[row].high).collect();
    let low: Vec<f64> = some.iter().map(|&row| -sums[row].low).collect();
    let signs: Option<Vec<f64>> = signs.map(|signs| some.iter().map(|&row| signs[row]).collect());
    let lengths = vec![1; some.len()]; // rows of one: an advantage each
    let counted = Rows::Ragged(&lengths).counted();
    let pairs = Columns {
        arrays: [&high[..], &low[..]],
        mask: None,
    };
    let shifted =
        |shift| sizes_and_moments(pairs, &counted, signs.as_deref(), bounds, some.len(), shift);
    let (sequences, least, most) = finished(shifted, signs.is_some());
    Ok(Statistics {
        tokens,
        sequences,
        min_sequence_ratio: least,
        max_sequence_ratio: most,
    })
}

fn epsilon<T: Float>(argument: &'static str, value: f64) -> Result<f64> {
    let found = T::narrow(value).widen();
    if found.is_finite() && found >= 0.0 {
        return Ok(found);
    }
    Err(Error::OutOfRange {
        argument,
        found,
        wanted: "finite and at least 0",
    })
}

/// The sizes |D| of all tokens, and the sums over them.
fn sizes_and_moments<T: Data>(
    columns: Columns<'_, T, 2>,
    rows: &[CountedRow],
    signs: Option<&[f64]>,
    bounds: (f64, f64),
    count: usize,
    shift: Option<f64>,
) -> (Vec<f64>, Raw) {
    let mut sizes = vec![0.0; if shift.is_none() { count } else { 0 }];
    let mut found = vec![Raw::default(); count_chunks(rows)];
    let mut rest = &mut sizes[..];
    let chunks = Chunks::new(rows, &mut [] as &mut [f64]).zip(&mut found);
    let chunks = chunks.map(|(chunk, found)| {
        let tokens: usize = chunk.rows.iter().map(|row| row.tokens).sum();
        let tokens = tokens.min(rest.len());
        let (sizes, behind) = std::mem::take(&mut rest).split_at_mut(tokens);
        rest = behind;
        let signs = signs.map(|signs| &signs[chunk.first..chunk.first + chunk.rows.len()]);
        let tokens = Tokens {
            columns,
            rows: chunk.rows,
            signs,
            bounds,
            sizes,
        };
        (tokens, found)
    });
    let slots = rows.last().map_or(0, |last| last.row.end);
    parallel::for_each(slots >= PARALLEL_SLOTS, chunks, |(tokens, found)| {
        *found = match shift {
            None => dispatch(Moved(tokens)),
            Some(shift) => dispatch(Weighted(tokens, shift)),
        };
    });
    let mut all = Raw::default();
    for chunk in &found {
        all.merge(chunk);
    }
    (sizes, all)
}

/// The moments, the least and the greatest ratio. Where Σr or Σr² may have over- or underflowed, the sums for the effective
/// sample size are taken again with the greatest D subtracted: its shares have no scale.
fn finished(pass: impl Fn(Option<f64>) -> (Vec<f64>, Raw), has_signs: bool) -> (Moments, f64, f64) {
    const SAFE: f64 = 300.0; // exp(±600) squared sums of up to 2^60 terms stay within the range
    let (sizes, raw) = pass(None);
    let ess = if raw.most_log.abs() <= SAFE {
        raw
    } else {
        pass(Some(raw.most_log)).1
    };
    let n = sizes.len() as f64;
    let share = |count: usize| count as f64 / n;
    let sum = ess.ratio();
    let p99_abs = quantile(sizes);
    let known = |value: f64| {
        if raw.has_nan || value.is_nan() {
            f64::NAN
        } else {
            value
        }
    }; // one NaN
    let moments = Moments {
        mean: known(raw.ratio() / n),
        max_abs: known(raw.most_size),
        p99_abs: known(p99_abs),
        k3: known(raw.k3() / n),
        chi2: known(raw.chi2() / n),
        ess_per_n: known(sum * (sum / (n * ess.square()))),
        mult_err: known(raw.growth() / n),
        outside_low: share(raw.counts[0]),
        outside_high: share(raw.counts[1]),
        clipped_low: has_signs.then(|| share(raw.counts[2])),
        clipped_high: has_signs.then(|| share(raw.counts[3])),
    };
    (moments, known(raw.least), known(raw.most))
}

/// The 0.99 quantile: of the two values around position 0.99 (n − 1), which is exact in whole numbers.
fn quantile(mut sizes: Vec<f64>) -> f64 {
    let position = 99 * (sizes.len() - 1);
    let (below, over) = (position / 100, position % 100);
    let (_, &mut value, above) = sizes.select_nth_unstable_by(below, f64::total_cmp);
    if over == 0 || value == f64::INFINITY {
        return value;
    }
    let next = above.iter().copied().min_by(f64::total_cmp);
    let gap = next.map_or(0.0, |next| next - value);
    value + gap * over as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn the_quantile_is_interpolated_between_its_neighbours() {
        assert_eq!(quantile(vec![3.0]), 3.0);
        assert_eq!(quantile(vec![1.0, 2.0]), 1.99);
        let hundred_and_one = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(hundred_and_one), 99.0);
        assert_eq!(quantile(vec![f64::INFINITY; 2]), f64::INFINITY);
    }
}
