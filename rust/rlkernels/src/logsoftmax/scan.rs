//! One streaming pass over logits: Σ e^(x/τ), Σ e^(x/τ)·x and the maximum, without storing anything.
//!
//! In base 2, with c = log2(e)/τ: k = round(x·c), r = x·c − k, e^(x/τ) = 2^k · 2^r. A fused multiply-add subtracts k before
//! the product is rounded, so the error of r is 2^-26 (`f32`) however large x is, and the maximum need not be known first:
//! sums are kept relative to 2^B, with an integer B near the greatest x·c so far, and to its logit A.
//!
//! c is a pair high + low; the low part is left out where it is below 2^-26 of the whole (2^-55 for `f64`), as for τ = 1:
//! the sums are then those of the base b with b^high = e^(1/τ), which costs log Σ 2^-26 · (H − log Σ), 1.9 · 2^-24 at most.

use super::format::Vectors;
use crate::double::Sum;
use crate::isa::{F32_LANES, Lanes, Mask, Simd, prefetch, tree64};

/// Logits between two checks of the maximum: 8 KiB of `f32`, so a block that is computed twice is still in the first cache.
const BLOCK: usize = 2048;
/// Bytes from a logit to the one that is fetched with it. The machine's own prefetching ends at every page of 4 KiB: two
/// pages ahead one thread reads from memory a fifth faster, and from the caches no slower.
const AHEAD: usize = 8192;
/// Vectors per step, each added to a sum of its own; there are no registers for more.
const UNROLL: usize = 4;
/// Vectors that are added in the data's type before they join a sum: 4 · 4, 4.25 roundings on average at most.
const GROUP: usize = 16;
/// Powers of two below the reference at which exponentials are clamped to 2^-120: 2^64 of them are still negligible.
pub(super) const DEPTH: f64 = 120.0;
/// Powers of two by which a logit may exceed the reference before the reference is moved; the excess reduces the accuracy
/// of Σ e·(x−A).
const RISE: f64 = 1.5;

/// The temperature and log2(e)/τ.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) temperature: f64,
    pub(super) high: f64,
    pub(super) low: f64,
    /// Whether sums need the low part.
    pub(super) exact: bool,
}

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// log2(e) − `LOG2_E`.
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
        let negligible = two_to(f64::from(-F::MANTISSA - 3)) * high;
        Self {
            temperature,
            high,
            low,
            exact: low.abs() > negligible,
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

    /// x·c − B, with the low part or as it is in sums without.
    pub(super) fn above(&self, x: f64, reference: f64, exact: bool) -> f64 {
        let low = if exact { x * self.low } else { 0.0 };
        x.mul_add(self.high, -reference) + low
    }
}

/// The largest |B| for which rounding by adding a large number works: 2^20 (`f32`), 2^49 (`f64`).
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
    /// A, the logit with which B was found.
    pub(super) origin: f64,
    /// Σ 2^(x·c − B).
    pub(super) sum: f64,
    /// Σ 2^(x·c − B) · (x − A).
    pub(super) weighted: f64,
}

impl Segment {
    pub(super) const EMPTY: Self = Self {
        max: f64::NEG_INFINITY,
        reference: f64::NEG_INFINITY,
        origin: 0.0,
        sum: 0.0,
        weighted: 0.0,
    };

    /// The row of these parts, in order.
    pub(super) fn merged(parts: &[Self]) -> Self {
        let mut row = Self::EMPTY;
        for part in parts {
            row.max = larger(part.max, row.max);
            if part.reference > row.reference {
                (row.reference, row.origin) = (part.reference, part.origin);
            }
        }
        let (mut sum, mut weighted) = (Sum::default(), Sum::default());
        for part in parts {
            let shift = part.reference - row.reference;
            if shift >= -1000.0 {
                let factor = two_to(shift);
                sum.add(part.sum * factor);
                weighted.add((part.weighted + (part.origin - row.origin) * part.sum) * factor);
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

/// The constants of all terms, in all lanes.
pub(super) struct Constants<V> {
    high: V,
    low: V,
    magic: V,
    lowest: V,
    limit: V,
    origin: V,
}

impl<V: Lanes> Constants<V> {
    /// For terms 2^(x·c − B + shift); those below 2^(shift − depth) are taken as that.
    #[inline(always)]
    pub(super) fn new<F: Vectors<Vector<S> = V>, S: Simd>(
        s: S,
        scale: &Scale,
        (reference, origin): (f64, f64),
        shift: f64,
        depth: f64,
    ) -> Self {
        // The sum of 1.5 · 2^MANTISSA + BIAS and an integer k holds the exponent field of 2^k in its last bits.
        let zero = 1.5 * two_to(f64::from(F::MANTISSA)) + F::BIAS;
        Self {
            high: F::splat(s, scale.high),
            low: F::splat(s, scale.low),
            magic: F::splat(s, zero + shift - reference),
            lowest: F::splat(s, (reference - depth) / scale.high),
            limit: F::splat(s, (reference + RISE) / scale.high),
            origin: F::splat(s, origin),
        }
    }

    /// The lanes too low to count.
    #[inline(always)]
    pub(super) fn too_low(&self, x: V) -> V::Mask {
        x.lt(self.lowest)
    }
}

/// A term as mantissa and power of two, whose product is exact, and the distance x − A; x is below B + 100.
pub(super) struct Term<V> {
    pub(super) mantissa: V,
    pub(super) power: V,
    pub(super) distance: V,
}

#[inline(always)]
pub(super) fn term<F: Vectors, S: Simd, const LOW: bool>(
    s: S,
    x: F::Vector<S>,
    constants: &Constants<F::Vector<S>>,
) -> Term<F::Vector<S>> {
    let x = constants.lowest.max(x); // a NaN stays
    let y = x.fma(constants.high, constants.magic); // its last bits are the exponent field
    let mut r = x.fma(constants.high, constants.magic - y);
    if LOW {
        r = x.fma(constants.low, r);
    }
    let last = F::POWER.len() - 1;
    let mut mantissa = F::splat(s, F::POWER[last]);
    for &c in F::POWER[..last].iter().rev() {
        mantissa = mantissa.fma(r, F::splat(s, c));
    }
    Term {
        mantissa,
        power: y.shift_left(),
        distance: x - constants.origin,
    }
}

/// Sums of two vectors each.
#[derive(Clone, Copy)]
struct Sums<S: Simd> {
    plain: (S::F64, S::F64),
    weighted: (S::F64, S::F64),
}

/// Adds the terms of words, a multiple of [`UNROLL`] vectors, to `sums`, and updates the maximum.
#[inline(always)]
fn block<F: Vectors, S: Simd, const ENTROPY: bool, const LOW: bool>(
    s: S,
    words: &[F::Word],
    constants: &Constants<F::Vector<S>>,
    mut sums: Sums<S>,
    mut max: F::Vector<S>,
) -> (Sums<S>, F::Vector<S>) {
    let zero = F::splat(s, 0.0);
    for group in words.chunks(GROUP * F::LANES) {
        let mut plain = [zero; UNROLL];
        let mut weighted = [zero; UNROLL];
        for four in group.chunks_exact(UNROLL * F::LANES) {
            for i in 0..UNROLL {
                let x = F::load(s, &four[i * F::LANES..]);
                prefetch(four, AHEAD / size_of::<F::Word>() + i * F::LANES);
                max = x.max(max);
                let term = term::<F, S, LOW>(s, x, constants);
                if ENTROPY {
                    let e = term.mantissa * term.power;
                    plain[i] = plain[i] + e;
                    weighted[i] = e.fma(term.distance, weighted[i]);
                } else {
                    plain[i] = term.mantissa.fma(term.power, plain[i]); // the same bits: the product is exact
                }
            }
        }
        let [a, b, c, d] = plain;
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
    if scale.exact {
        summed::<F, S, ENTROPY, true>(s, words, scale)
    } else {
        summed::<F, S, ENTROPY, false>(s, words, scale)
    }
}

#[inline(always)]
fn summed<F: Vectors, S: Simd, const ENTROPY: bool, const LOW: bool>(
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
    let mut has_nan = nothing.is_nan(); // in logits that are not summed
    let mut reference = (f64::NEG_INFINITY, 0.0);
    let mut constants = Constants::new::<F, S>(s, scale, (0.0, 0.0), 0.0, DEPTH);
    let mut padded = [F::LOWEST; UNROLL * F32_LANES];
    for block_words in words.chunks(BLOCK) {
        let whole = block_words.len() / (UNROLL * F::LANES) * (UNROLL * F::LANES);
        let (whole, rest) = block_words.split_at(whole);
        padded[..rest.len()].copy_from_slice(rest);
        let last = if rest.is_empty() {
            0
        } else {
            UNROLL * F::LANES
        };
        for words in [whole, &padded[..last]] {
            if reference.0 > f64::NEG_INFINITY {
                let (new, greater) = block::<F, S, ENTROPY, LOW>(s, words, &constants, sums, max);
                max = greater;
                if !constants.limit.lt(max).any() {
                    sums = new;
                    continue;
                }
            } else {
                for vector in words.chunks_exact(F::LANES) {
                    let x = F::load(s, vector);
                    max = x.max(max);
                    has_nan = has_nan | x.is_nan();
                }
            }
            let origin = greatest::<F, S>(s, max);
            let top = scale.power(origin);
            if top > most::<F>() || has_nan.any() || !scale.fits::<F>() {
                return Segment {
                    max: origin,
                    reference: f64::INFINITY,
                    ..Segment::EMPTY
                };
            }
            if top < -2.0 * most::<F>() {
                continue; // negligible beside logits in range; without any, the slow path is taken
            }
            if reference.0 > f64::NEG_INFINITY {
                rebase(s, &mut sums, reference.0 - top, reference.1 - origin);
            }
            reference = (top, origin);
            constants = Constants::new::<F, S>(s, scale, reference, 0.0, DEPTH);
            (sums, max) = block::<F, S, ENTROPY, LOW>(s, words, &constants, sums, max);
        }
    }
    let (a, b) = (sums.plain.0.array(), sums.plain.1.array());
    let (c, d) = (sums.weighted.0.array(), sums.weighted.1.array());
    Segment {
        max: greatest::<F, S>(s, max),
        reference: reference.0,
        origin: reference.1,
        sum: tree64(a) + tree64(b),
        weighted: tree64(c) + tree64(d),
    }
}

/// Sums relative to a reference from which B is `shift` (below 0) and A is `distance` away.
#[inline(always)]
fn rebase<S: Simd>(s: S, sums: &mut Sums<S>, shift: f64, distance: f64) {
    let factor = s.f64(two_to(larger(shift, -1000.0)));
    let distance = s.f64(distance);
    let weighted = sums.weighted;
    sums.weighted = (
        distance.fma(sums.plain.0, weighted.0) * factor,
        distance.fma(sums.plain.1, weighted.1) * factor,
    );
    sums.plain = (sums.plain.0 * factor, sums.plain.1 * factor);
}
