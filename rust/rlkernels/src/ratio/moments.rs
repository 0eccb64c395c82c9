//! The pass over the log-ratios of tokens, or of sequences, that all statistics but the quantile come from.

use super::differences::{difference, row_sum};
use crate::chunks::Columns;
use crate::data::{Data, Sums};
use crate::double::{Double, Sum};
use crate::isa::{F64_LANES, Kernel, Lanes, Mask, Simd};
use crate::math::exp64_sum;
use crate::rows::CountedRow;

/// Rows, and where the sizes of their tokens' log-ratios go.
pub(super) struct Tokens<'a, T> {
    pub(super) columns: Columns<'a, T, 2>,
    pub(super) rows: &'a [CountedRow],
    /// One advantage for each of the rows.
    pub(super) signs: Option<&'a [f64]>,
    /// 1 − `ε_low`, 1 + `ε_high`.
    pub(super) bounds: (f64, f64),
    pub(super) sizes: &'a mut [f64],
}

/// Sums over tokens; those of chunks are added in order.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    /// r, r², k3, expm1(2D), exp|D|.
    sums: [Sum; 5],
    pub(super) most_log: f64,
    pub(super) most_size: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// Below the lower bound, above the upper, and both with an advantage to clip.
    pub(super) counts: [usize; 4],
    pub(super) has_nan: bool,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            sums: [Sum::default(); 5],
            most_log: f64::NEG_INFINITY,
            most_size: 0.0,
            least: f64::INFINITY,
            most: 0.0,
            counts: [0; 4],
            has_nan: false,
        }
    }
}

impl Raw {
    pub(super) fn ratio(&self) -> f64 {
        self.sums[0].value()
    }
    pub(super) fn square(&self) -> f64 {
        self.sums[1].value()
    }
    pub(super) fn k3(&self) -> f64 {
        self.sums[2].value()
    }
    pub(super) fn chi2(&self) -> f64 {
        self.sums[3].value()
    }
    pub(super) fn growth(&self) -> f64 {
        self.sums[4].value()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, term) in self.sums.iter_mut().zip(other.sums) {
            sum.add_double(term.double());
        }
        self.most_log = larger(self.most_log, other.most_log);
        self.most_size = larger(self.most_size, other.most_size);
        self.least = -larger(-self.least, -other.least);
        self.most = larger(self.most, other.most);
        for (count, term) in self.counts.iter_mut().zip(other.counts) {
            *count += term;
        }
        self.has_nan |= other.has_nan;
    }

    fn add_sums<T: Data, S: Simd>(&mut self, sums: [Sums<S::F64>; 5]) {
        for (to, from) in self.sums.iter_mut().zip(sums) {
            to.add_double(from.total::<T>());
        }
    }
}

fn larger(a: f64, b: f64) -> f64 {
    if a < b { b } else { a }
}

/// All sums, and the sizes.
pub(super) struct Moved<'a, T>(pub(super) Tokens<'a, T>);

/// Only r and r², of D less a shift.
pub(super) struct Weighted<'a, T>(pub(super) Tokens<'a, T>, pub(super) f64);

/// The sums of every row's differences as pairs; a row without tokens gives 0.
pub(super) struct Totals<'a, T> {
    pub(super) columns: Columns<'a, T, 2>,
    pub(super) rows: &'a [CountedRow],
}

impl<T: Data> Kernel for Totals<'_, T> {
    type Output = Vec<Double<f64>>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut sums = Vec::with_capacity(self.rows.len());
        for counted in self.rows {
            sums.push(row_sum::<T, S>(s, &self.columns, counted.row, false));
        }
        sums
    }
}

impl<T: Data> Kernel for Weighted<'_, T> {
    type Output = Raw;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Raw {
        let Self(tokens, shift) = self;
        let mut sums = [Sums::new(s); 5];
        for counted in tokens.rows {
            let (groups, rest) = tokens.columns.groups(counted.row);
            for groups in [groups, rest.groups()] {
                for group in 0..groups.len() {
                    let bits = groups.bits(group);
                    let d = difference::<T, S>(s, &groups, group, bits, false);
                    let mut less = T::minus(s, d.high, s.f64(shift));
                    less.low = less.low + d.low;
                    let ratio = T::exp(s, less);
                    let ratio = S::F64::select(s.mask64(bits), ratio, s.f64(0.0));
                    sums[0].add::<T>(ratio);
                    sums[1].add::<T>(ratio * ratio);
                }
            }
        }
        let mut raw = Raw::default();
        raw.add_sums::<T, S>(sums);
        raw
    }
}

impl<T: Data> Kernel for Moved<'_, T> {
    type Output = Raw;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Raw {
        let Self(tokens) = self;
        let mut raw = Raw::default();
        let mut sums = [Sums::new(s); 5];
        let zero = s.f64(0.0);
        let infinity = s.f64(f64::INFINITY);
        let (low, high) = (s.f64(tokens.bounds.0), s.f64(tokens.bounds.1));
        let (mut most_log, mut most_size) = (-infinity, zero);
        let (mut least, mut most) = (infinity, zero);
        let mut written = 0;
        for (row, counted) in tokens.rows.iter().enumerate() {
            let sign = tokens.signs.map_or(0.0, |signs| signs[row]);
            let (groups, rest) = tokens.columns.groups(counted.row);
            for groups in [groups, rest.groups()] {
                for group in 0..groups.len() {
                    let bits = groups.bits(group);
                    if bits == 0 {
                        continue;
                    }
                    let valid = s.mask64(bits);
                    let d = difference::<T, S>(s, &groups, group, bits, false);
                    let growth = T::growth(s, d);
                    // 1/r for exp(−D): to 3u, but for r near the end of the range
                    let mut inverse = s.f64(1.0) / growth.exp;
                    if d.high.lt(s.f64(-700.0)).any() {
                        inverse = exp64_sum(s, -d.high, -d.low);
                    }
                    let is_negative = d.high.lt(zero);
                    let terms = [
                        growth.exp,
                        growth.exp * growth.exp,
                        growth.k3,
                        growth.expm1 * (growth.expm1 + s.f64(2.0)), // expm1(2D): the factor is above 1
                        S::F64::select(is_negative, inverse, growth.exp),
                    ];
                    for (sum, term) in sums.iter_mut().zip(terms) {
                        sum.add::<T>(S::F64::select(valid, term, zero));
                    }
                    let size = d.high.abs();
                    raw.has_nan |= d.high.is_nan().any();
                    most_log = S::F64::select(valid, d.high, most_log).max(most_log);
                    most_size = size.max(most_size); // 0 where no token is
                    least = S::F64::select(valid, growth.exp, least).min(least);
                    most = S::F64::select(valid, growth.exp, most).max(most);
                    let below = (valid & growth.exp.lt(low)).count() as usize;
                    let above = (valid & high.lt(growth.exp)).count() as usize;
                    raw.counts[0] += below;
                    raw.counts[1] += above;
                    raw.counts[2] += if sign < 0.0 { below } else { 0 };
                    raw.counts[3] += if sign > 0.0 { above } else { 0 };
                    written += pushed(&mut tokens.sizes[written..], size.array(), bits);
                }
            }
        }
        raw.add_sums::<T, S>(sums);
        raw.most_log = most_log.array().into_iter().fold(raw.most_log, larger);
        raw.most_size = most_size.array().into_iter().fold(raw.most_size, larger);
        raw.least = -(-least).array().into_iter().fold(-raw.least, larger);
        raw.most = most.array().into_iter().fold(raw.most, larger);
        raw
    }
}

/// Writes the lanes that are tokens to the front of `out` and returns their number.
#[inline(always)]
fn pushed(out: &mut [f64], lanes: [f64; F64_LANES], bits: u8) -> usize {
    if bits == 0xff
        && let Some(out) = out.first_chunk_mut::<F64_LANES>()
    {
        *out = lanes;
        return F64_LANES;
    }
    let mut count = 0;
    for (lane, &size) in lanes.iter().enumerate() {
        if bits >> lane & 1 == 1 {
            out[count] = size;
            count += 1;
        }
    }
    count
}
