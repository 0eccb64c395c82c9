//! The metrics of a loss: how far the ratios went, how many were clipped, and the mean KL.

use super::row_sums::LossSums;
use crate::data::Data;
use crate::double::Sum;
use crate::isa::{F64_LANES, Lanes, Simd, tree64};

/// What a step logs. Means and shares are over tokens; a row's ratio counts once for each of its tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Number of tokens.
    pub tokens: usize,
    /// Number of rows that have a token.
    pub sequences: usize,
    /// Mean of the ratio that the algorithm uses; NaN without tokens, as the next three.
    pub ratio_mean: f64,
    /// Its least value.
    pub ratio_min: f64,
    /// Its greatest value.
    pub ratio_max: f64,
    /// Mean of r − 1 − log r: k3 of the mismatch, to about 1e-10 (float32 data) or 1e-15 (float64) of the mean ratio.
    pub ratio_k3: f64,
    /// Share of tokens whose ratio is below the lower bound, whatever the advantage; `None` where there is no bound.
    pub outside_low: Option<f64>,
    /// Share of tokens whose ratio is above the upper bound.
    pub outside_high: Option<f64>,
    /// Share of tokens below the lower bound with a negative advantage: the clip acts.
    pub clipped_low: Option<f64>,
    /// Share of tokens above the upper bound with a positive advantage (CISPO: whatever the advantage).
    pub clipped_high: Option<f64>,
    /// Share of tokens above δ with a negative advantage.
    pub clipped_delta: Option<f64>,
    /// Mean of the KL estimate, before `kl_ratio` and β; `None` where β is 0.
    pub kl: Option<f64>,
}

impl Metrics {
    /// The metrics that are not `None`, by name.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let given = [
            ("tokens", Some(self.tokens as f64)),
            ("sequences", Some(self.sequences as f64)),
            ("ratio_mean", Some(self.ratio_mean)),
            ("ratio_min", Some(self.ratio_min)),
            ("ratio_max", Some(self.ratio_max)),
            ("ratio_k3", Some(self.ratio_k3)),
            ("outside_low", self.outside_low),
            ("outside_high", self.outside_high),
            ("clipped_low", self.clipped_low),
            ("clipped_high", self.clipped_high),
            ("clipped_delta", self.clipped_delta),
            ("kl", self.kl),
        ];
        given
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name, value)))
            .collect()
    }
}

/// Sums over rows; those of chunks are added in order.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    loss: Sum,
    tokens: usize,
    sequences: usize,
    ratios: f64,
    logs: f64,
    least: f64,
    most: f64,
    /// Below the lower bound, above the upper, above δ; and those of them where the clip acts.
    outside: [usize; 3],
    clipped: [usize; 3],
    estimates: f64,
    /// The loss, the differences and the estimates add up to finite numbers: then every value of a token is finite.
    pub(super) is_finite: bool,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            loss: Sum::default(),
            tokens: 0,
            sequences: 0,
            ratios: 0.0,
            logs: 0.0,
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
            outside: [0; 3],
            clipped: [0; 3],
            estimates: 0.0,
            is_finite: true,
        }
    }
}

impl Tally {
    /// Adds a row; `whole` is the log of its ratio and the ratio, `advantage` the row's, where it has one of its own.
    #[inline(always)]
    pub(super) fn add_row<T: Data, S: Simd>(
        &mut self,
        row: &LossSums<S>,
        weight: f64,
        tokens: usize,
        whole: Option<(f64, f64)>,
        advantage: Option<f64>,
    ) {
        let loss = row.loss.total::<T>();
        self.loss.add(loss.high * weight);
        self.loss.add(loss.low * weight);
        self.tokens += tokens;
        self.sequences += 1;
        let estimates = tree64(row.estimates.array());
        self.estimates += estimates;
        let total = tree64(row.differences.array());
        let (of_ratios, of_logs) = match whole {
            Some((log, ratio)) => (ratio * tokens as f64, log * tokens as f64),
            None => (tree64(row.ratios.array()), total),
        };
        self.ratios += of_ratios;
        self.logs += of_logs;
        let (least, most) = (row.least.array(), row.most.array());
        for lane in 0..F64_LANES {
            self.between(least[lane], most[lane]);
        }
        let outside = row.outside.map(|count| tree64(count.array()) as usize);
        let clipped = match advantage {
            None => row.clipped,
            Some(a) => {
                let acts = [a < 0.0, a > 0.0, a < 0.0];
                std::array::from_fn(|i| if acts[i] { outside[i] } else { 0 })
            }
        };
        for (sum, count) in self.outside.iter_mut().zip(outside) {
            *sum += count;
        }
        for (sum, count) in self.clipped.iter_mut().zip(clipped) {
            *sum += count;
        }
        // What is not finite on a token reaches one of these sums, and a sum of finite numbers may overflow.
        self.is_finite &= loss.high.is_finite() && total.is_finite() && estimates.is_finite();
    }

    fn between(&mut self, least: f64, most: f64) {
        if least < self.least {
            self.least = least;
        }
        if self.most < most {
            self.most = most;
        }
    }

    /// Adds the sums of the next chunk.
    pub(super) fn merge(&mut self, other: &Self) {
        self.loss.add_double(other.loss.double());
        self.tokens += other.tokens;
        self.sequences += other.sequences;
        self.ratios += other.ratios;
        self.logs += other.logs;
        self.between(other.least, other.most);
        for i in 0..3 {
            self.outside[i] += other.outside[i];
            self.clipped[i] += other.clipped[i];
        }
        self.estimates += other.estimates;
        self.is_finite &= other.is_finite;
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss.value()
    }

    /// `has_bounds`: lower, upper, δ. `has_kl`: β is not 0.
    pub(super) fn metrics(
        &self,
        has_bounds: [bool; 3],
        is_truncated: bool,
        has_kl: bool,
    ) -> Metrics {
        let count = self.tokens as f64;
        let some = |value: f64| if self.tokens == 0 { f64::NAN } else { value };
        let share = |tokens: usize, is_there: bool| is_there.then(|| some(tokens as f64 / count));
        let [low, high, delta] = has_bounds;
        let above = if is_truncated {
            self.outside
        } else {
            self.clipped
        };
        let k3 = (self.ratios - self.logs) / count - 1.0;
        Metrics {
            tokens: self.tokens,
            sequences: self.sequences,
            ratio_mean: some(self.ratios / count),
            ratio_min: some(self.least),
            ratio_max: some(self.most),
            ratio_k3: some(if k3 < 0.0 { 0.0 } else { k3 }), // never negative but by rounding
            outside_low: share(self.outside[0], low),
            outside_high: share(self.outside[1], high),
            clipped_low: share(self.clipped[0], low),
            clipped_high: share(above[1], high),
            clipped_delta: share(self.clipped[2], delta),
            kl: has_kl.then(|| some(self.estimates / count)),
        }
    }
}
