//! The tokens that a filter keeps, as a list in id order.

use super::cut::{Candidate, Cut};
use super::logits::Value;
use super::passes::Weight;
use crate::isa::{F64_LANES, Kernel, Lanes, Mask, Simd, dispatch};

/// Values with their ids, the ids rising.
///
/// The memory is longer than the list: eight slots are written at a time, and only the kept ones count.
#[derive(Default)]
pub(super) struct List {
    values: Vec<f64>,
    ids: Vec<u32>,
    len: usize,
}

impl List {
    /// The memory that it holds.
    pub(super) fn bytes(&self) -> usize {
        8 * self.values.capacity() + 4 * self.ids.capacity()
    }
}

/// A filter that decides by the value of a token alone.
pub(super) trait Keep: Copy {
    fn mask<S: Simd>(self, s: S, x: S::F64) -> S::M64;
}

/// Values above this one.
#[derive(Clone, Copy)]
struct Above(f64);
/// This value and those above.
#[derive(Clone, Copy)]
struct AtLeast(f64);
/// Exponents of at least this number.
#[derive(Clone, Copy)]
pub(super) struct ExponentAtLeast(pub(super) Weight, pub(super) f64);
/// Weights of at most this number.
#[derive(Clone, Copy)]
pub(super) struct WeightAtMost(pub(super) Weight, pub(super) f64);

impl Keep for Above {
    #[inline(always)]
    fn mask<S: Simd>(self, s: S, x: S::F64) -> S::M64 {
        s.f64(self.0).lt(x)
    }
}
impl Keep for AtLeast {
    #[inline(always)]
    fn mask<S: Simd>(self, s: S, x: S::F64) -> S::M64 {
        s.f64(self.0).le(x)
    }
}
impl Keep for ExponentAtLeast {
    #[inline(always)]
    fn mask<S: Simd>(self, s: S, x: S::F64) -> S::M64 {
        s.f64(self.1).le(self.0.exponent(s, x))
    }
}
impl Keep for WeightAtMost {
    #[inline(always)]
    fn mask<S: Simd>(self, s: S, x: S::F64) -> S::M64 {
        self.0.lanes(s, x).le(s.f64(self.1))
    }
}

/// Where values come from: a row, whose ids are its positions, or a list.
#[derive(Clone, Copy)]
pub(super) struct Source<'a, E> {
    pub(super) values: &'a [E],
    pub(super) ids: Option<&'a [u32]>,
}

impl<E: Value> Source<'_, E> {
    #[inline(always)]
    pub(super) fn id(&self, position: usize) -> u32 {
        self.ids.map_or(position as u32, |ids| ids[position])
    }

    /// Where a token stands, if it is there.
    pub(super) fn position(&self, id: u32) -> Option<usize> {
        match self.ids {
            Some(ids) => ids.binary_search(&id).ok(),
            None => Some(id as usize),
        }
    }
}

impl List {
    pub(super) fn values(&self) -> &[f64] {
        &self.values[..self.len]
    }

    pub(super) fn ids(&self) -> &[u32] {
        &self.ids[..self.len]
    }

    /// Becomes the tokens that a cut keeps.
    pub(super) fn cut<E: Value>(&mut self, from: Source<'_, E>, cut: &Cut) {
        self.clear(from.values.len());
        self.append(from, 0, cut.tied.start, Above(cut.value));
        self.append(from, cut.tied.start, cut.tied.end, AtLeast(cut.value));
        self.append(from, cut.tied.end, from.values.len(), Above(cut.value));
    }

    /// Becomes exactly these tokens of a source.
    pub(super) fn take<E: Value>(&mut self, from: Source<'_, E>, candidates: &mut [Candidate]) {
        candidates.sort_unstable_by_key(|candidate| candidate.position);
        self.clear(candidates.len());
        self.len = candidates.len();
        let slots = self.values.iter_mut().zip(&mut self.ids);
        for ((value, id), candidate) in slots.zip(candidates) {
            *value = candidate.value;
            *id = from.id(candidate.position as usize);
        }
    }

    /// Becomes the tokens that `keep` keeps.
    pub(super) fn keep<E: Value>(&mut self, from: Source<'_, E>, keep: impl Keep) {
        self.clear(from.values.len());
        self.append(from, 0, from.values.len(), keep);
    }

    /// Puts a token of the source that was filtered to its place, unless it is there already.
    pub(super) fn insert(&mut self, value: f64, id: u32) {
        if let Err(at) = self.ids().binary_search(&id) {
            self.values.copy_within(at..self.len, at + 1); // `clear` made room for the whole source
            self.ids.copy_within(at..self.len, at + 1);
            (self.values[at], self.ids[at]) = (value, id);
            self.len += 1;
        }
    }

    fn clear(&mut self, most: usize) {
        self.len = 0;
        if self.values.len() < most + F64_LANES {
            self.values.resize(most + F64_LANES, 0.0);
            self.ids.resize(most + F64_LANES, 0);
        }
    }

    fn append<E: Value>(&mut self, from: Source<'_, E>, start: usize, end: usize, keep: impl Keep) {
        dispatch(Append {
            from,
            start,
            end,
            keep,
            list: self,
        });
    }

    /// Appends those of eight values whose bit is set.
    #[inline(always)]
    fn push<E: Value>(
        &mut self,
        from: Source<'_, E>,
        first: usize,
        values: [f64; F64_LANES],
        bits: u32,
    ) {
        if bits == 0 {
            return;
        }
        let window = self.values[self.len..].first_chunk_mut::<F64_LANES>();
        let ids = self.ids[self.len..].first_chunk_mut::<F64_LANES>();
        let (Some(window), Some(ids)) = (window, ids) else {
            return; // `clear` made room for all values and a window more
        };
        let mut kept = 0;
        for (lane, value) in values.into_iter().enumerate() {
            // Without a branch, which would be mispredicted where about every other token is kept.
            window[kept % F64_LANES] = value;
            ids[kept % F64_LANES] = from.id(first + lane);
            kept += (bits >> lane & 1) as usize;
        }
        self.len += kept;
    }
}

struct Append<'a, E, K> {
    from: Source<'a, E>,
    start: usize,
    end: usize,
    keep: K,
    list: &'a mut List,
}

impl<E: Value, K: Keep> Kernel for Append<'_, E, K> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Append {
            from,
            start,
            end,
            keep,
            list,
        } = self;
        let (chunks, rest) = from.values[start..end].as_chunks::<F64_LANES>();
        for (index, chunk) in chunks.iter().enumerate() {
            let x = E::lanes(s, chunk);
            let bits = keep.mask(s, x).bits();
            list.push(from, start + index * F64_LANES, x.array(), bits);
        }
        for position in end - rest.len()..end {
            let value = from.values[position].widen();
            if keep.mask(s, s.f64(value)).any() {
                list.values[list.len] = value;
                list.ids[list.len] = from.id(position);
                list.len += 1;
            }
        }
    }
}
