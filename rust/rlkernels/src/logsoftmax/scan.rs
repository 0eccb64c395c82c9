//! One streaming pass over logits: Σ e^((x−M)/τ), Σ e^((x−M)/τ)·(x−M)/τ and the maximum M, without storing anything.
//!
//! In base 2, with c = log2(e)/τ as a pair high + low: k = round(x·c), r = x·c − k, e^(x/τ) = 2^k · 2^r. The product is
//! never rounded before k is taken off (fused multiply-add), so r is right to 2^-26 (`f32`) however large x is, and no
//! maximum needs to be known beforehand: the sums are kept relative to 2^B, an integer B near the maximum so far.
#![allow(clippy::inline_always)] // what uses lanes must be inlined into the function that has the instructions

use super::format::Vectors;
use crate::compensated::Sum;
use crate::isa::{F32_LANES, Lanes, Mask, Simd};
use crate::math::tree64;

/// Logits between two looks at the maximum: 8 KiB of `f32`, so what is computed twice is still in the first cache.
const BLOCK: usize = 2048;
/// Vectors that are added by a tree before they join a sum: at most three roundings of the data's type.
const GROUP: usize = 8;
/// Powers of two below the reference from which on an exponential is taken as 2^-120: 2^64 of them are still nothing.
const DEPTH: f64 = 120.0;
/// Powers of two by which a logit may lie above the reference before the reference is moved: what it lies above is lost
/// from the accuracy of Σ e·t.
const RISE: f64 = 1.5;

/// The temperature and log2(e)/τ.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) temperature: f64,
    pub(super) high: f64,
    pub(super) low: f64,
}

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// log2(e) − LOG2_E.
const LOG2_E_LOW: f64 = 2.035_527_374_093_103_3e-17;

impl Scale {
    /// `temperature` is finite, above 0 and of the result's type.
    pub(super) fn new<F: Vectors>(temperature: f64) -> Self {
        let quotient = LOG2_E / temperature;
        let rest = (-quotient).mul_add(temperature, LOG2_E) + LOG2_E_LOW;
        let (high, low) = if F::MANTISSA == 23 {
            let high = f64::from(quotient as f32);
            (high, f64::from((quotient - high) as f32))
        } else {
            (quotient, rest / temperature)
        };
        Self {
            temperature,
            high,
            low,
        }
    }

    /// Whether x·c neither overflows nor loses bits to underflow.
    fn fits<F: Vectors>(&self) -> bool {
        let most = if F::MANTISSA == 23 { 2e19 } else { 1e150 }; // 2^64, 2^498
        (1.0 / most..=most).contains(&self.high)
    }

    /// The integer next to x·c; NaN for ±inf.
    fn power(&self, x: f64) -> f64 {
        (x * self.high).round_ties_even()
    }

    /// x·c − B.
    pub(super) fn above(&self, x: f64, reference: f64) -> f64 {
        x.mul_add(self.high, -reference) + x * self.low
    }
}

/// |B| up to here leaves room for the bits of the trick that rounds: 2^20 (`f32`), 2^49 (`f64`).
fn most<F: Vectors>() -> f64 {
    two_to(f64::from(F::MANTISSA - 3))
}

/// The sums over a part of a row.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// The greatest logit, NaN aside; −inf where there is none.
    pub(super) max: f64,
    /// B; −inf where no logit is near enough to be summed, +inf where one is too large.
    pub(super) reference: f64,
    /// Σ 2^(x·c − B).
    pub(super) sum: f64,
    /// Σ 2^(x·c − B) · (x·c − B).
    pub(super) weighted: f64,
}

impl Segment {
    pub(super) const EMPTY: Self = Self {
        max: f64::NEG_INFINITY,
        reference: f64::NEG_INFINITY,
        sum: 0.0,
        weighted: 0.0,
    };

    /// The row of these parts, in order.
    pub(super) fn merged(parts: &[Self]) -> Self {
        let mut row = Self::EMPTY;
        for part in parts {
            row.max = larger(part.max, row.max);
            row.reference = larger(part.reference, row.reference);
        }
        let (mut sum, mut weighted) = (Sum::<true>::default(), Sum::<true>::default());
        for part in parts {
            let shift = part.reference - row.reference;
            if shift >= -1000.0 {
                let factor = two_to(shift);
                sum.add(part.sum * factor);
                weighted.add((part.weighted + shift * part.sum) * factor);
            } else if part.sum.is_nan() {
                sum.add(f64::NAN);
            }
        }
        row.sum = sum.value();
        row.weighted = weighted.value();
        row
    }

    /// Whether the sums can be used; otherwise the row needs the slow path.
    pub(super) fn is_usable<F: Vectors>(&self) -> bool {
        self.reference.abs() <= most::<F>()
    }
}

fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// 2^k for integral k in −1022 ..= 1023.
pub(super) fn two_to(k: f64) -> f64 {
    f64::from_bits(((k + 1023.0) as u64) << 52)
}

/// What every term needs, in all lanes.
pub(super) struct Constants<V> {
    high: V,
    low: V,
    magic: V,
    bias: V,
    lowest: V,
    limit: V,
}

impl<V: Lanes> Constants<V> {
    /// For terms 2^(x·c − B + shift); below `depth` powers of two under B they are taken as 2^(shift − depth).
    #[inline(always)]
    pub(super) fn new<F: Vectors<Vector<S> = V>, S: Simd>(
        s: S,
        scale: &Scale,
        reference: f64,
        shift: f64,
        depth: f64,
    ) -> Self {
        let zero = 1.5 * two_to(f64::from(F::MANTISSA)) + F::BIAS + shift;
        Self {
            high: F::splat(s, scale.high),
            low: F::splat(s, scale.low),
            magic: F::splat(s, zero - reference),
            bias: F::splat(s, zero),
            lowest: F::splat(s, (reference - depth) / scale.high),
            limit: F::splat(s, (reference + RISE) / scale.high),
        }
    }

    /// The lanes too low to count.
    #[inline(always)]
    pub(super) fn too_low(&self, x: V) -> V::Mask {
        x.lt(self.lowest)
    }
}

/// 2^t · 2^shift and t = x·c − B, for x not above B by more than 100.
#[inline(always)]
pub(super) fn term<F: Vectors, S: Simd>(
    s: S,
    x: F::Vector<S>,
    constants: &Constants<F::Vector<S>>,
) -> (F::Vector<S>, F::Vector<S>) {
    let x = constants.lowest.max(x); // a NaN stays
    let y = x.fma(constants.high, constants.magic); // its last bits are k − B + shift + bias
    let r = x.fma(constants.low, x.fma(constants.high, constants.magic - y));
    let last = F::POWER.len() - 1;
    let mut q = F::splat(s, F::POWER[last]);
    for &c in F::POWER[..last].iter().rev() {
        q = q.fma(r, F::splat(s, c));
    }
    (q * y.shift_left(), (y - constants.bias) + r)
}

/// Sums of two vectors each.
#[derive(Clone, Copy)]
struct Sums<S: Simd> {
    plain: (S::F64, S::F64),
    weighted: (S::F64, S::F64),
}

/// Adds the terms of whole groups to `sums`, and looks for the maximum.
#[inline(always)]
fn block<F: Vectors, S: Simd, const ENTROPY: bool>(
    s: S,
    words: &[F::Word],
    constants: &Constants<F::Vector<S>>,
    mut sums: Sums<S>,
    mut max: F::Vector<S>,
) -> (Sums<S>, F::Vector<S>) {
    for group in words.chunks_exact(GROUP * F::LANES) {
        let mut quarters = [F::splat(s, 0.0); GROUP / 2];
        let mut weighted = [F::splat(s, 0.0); GROUP / 2];
        for i in 0..GROUP / 2 {
            let pair = &group[2 * i * F::LANES..];
            let x = F::load(s, pair);
            let (a, t) = term::<F, S>(s, x, constants);
            max = x.max(max);
            let x = F::load(s, &pair[F::LANES..]);
            let (b, u) = term::<F, S>(s, x, constants);
            max = x.max(max);
            quarters[i] = a + b;
            if ENTROPY {
                weighted[i] = a.fma(t, b * u);
            }
        }
        let [a, b, c, d] = quarters;
        sums.plain = F::add(s, sums.plain, (a + b) + (c + d));
        if ENTROPY {
            let [a, b, c, d] = weighted;
            sums.weighted = F::add(s, sums.weighted, (a + b) + (c + d));
        }
    }
    (sums, max)
}

/// The largest of the lanes.
#[inline(always)]
fn greatest<F: Vectors, S: Simd>(s: S, values: F::Vector<S>) -> f64 {
    let mut greatest = f64::NEG_INFINITY;
    for value in F::reals(s, values) {
        greatest = larger(value, greatest);
    }
    greatest
}

/// Sums over a part of a row.
#[inline(always)]
pub(super) fn segment<F: Vectors, S: Simd, const ENTROPY: bool>(
    s: S,
    words: &[F::Word],
    scale: &Scale,
) -> Segment {
    let zero = s.f64(0.0);
    let nothing = F::splat(s, f64::NEG_INFINITY);
    let mut sums = Sums::<S> {
        plain: (zero, zero),
        weighted: (zero, zero),
    };
    let mut max = nothing;
    let mut strange = nothing.is_nan(); // NaN in what is not summed
    let mut reference = f64::NEG_INFINITY;
    let mut constants = Constants::new::<F, S>(s, scale, 0.0, 0.0, DEPTH);
    let mut padded = [F::LOWEST; GROUP * F32_LANES];
    for block_words in words.chunks(BLOCK) {
        let whole = block_words.len() / (GROUP * F::LANES) * (GROUP * F::LANES);
        let (whole, rest) = block_words.split_at(whole);
        padded[..rest.len()].copy_from_slice(rest);
        let last = if rest.is_empty() { 0 } else { GROUP * F::LANES };
        for words in [whole, &padded[..last]] {
            if reference > f64::NEG_INFINITY {
                let (new, greater) = block::<F, S, ENTROPY>(s, words, &constants, sums, max);
                max = greater;
                if !constants.limit.lt(max).any() {
                    sums = new;
                    continue;
                }
            } else {
                for vector in words.chunks_exact(F::LANES) {
                    let x = F::load(s, vector);
                    max = x.max(max);
                    strange = strange | x.is_nan();
                }
            }
            let top = scale.power(greatest::<F, S>(s, max));
            if top > most::<F>() || strange.any() || !scale.fits::<F>() {
                return Segment {
                    max: greatest::<F, S>(s, max),
                    reference: f64::INFINITY,
                    ..Segment::EMPTY
                };
            }
            if top < -2.0 * most::<F>() {
                continue; // nothing beside what lies in range, and where nothing does the slow path is taken
            }
            if reference > f64::NEG_INFINITY {
                rebase(s, &mut sums, reference - top);
            }
            reference = top;
            constants = Constants::new::<F, S>(s, scale, reference, 0.0, DEPTH);
            (sums, max) = block::<F, S, ENTROPY>(s, words, &constants, sums, max);
        }
    }
    let (a, b) = (sums.plain.0.array(), sums.plain.1.array());
    let (c, d) = (sums.weighted.0.array(), sums.weighted.1.array());
    Segment {
        max: greatest::<F, S>(s, max),
        reference,
        sum: tree64(a) + tree64(b),
        weighted: tree64(c) + tree64(d),
    }
}

/// Sums relative to a reference that is `shift` (below 0) from the old one.
#[inline(always)]
fn rebase<S: Simd>(s: S, sums: &mut Sums<S>, shift: f64) {
    let factor = s.f64(two_to(larger(shift, -1000.0)));
    let shift = s.f64(shift);
    let weighted = sums.weighted;
    sums.weighted = (
        shift.fma(sums.plain.0, weighted.0) * factor,
        shift.fma(sums.plain.1, weighted.1) * factor,
    );
    sums.plain = (sums.plain.0 * factor, sums.plain.1 * factor);
}
