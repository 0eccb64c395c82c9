//! The differences D = policy − old of tokens, and their sums over sequences.

use crate::chunks::{Columns, Groups};
use crate::data::{Data, Sums};
use crate::double::Double;
use crate::isa::{Lanes, Simd};
use crate::rows::Row;

/// The fewest slots for which threads are used: with fewer, waking them costs more than they save.
pub(super) const PARALLEL_SLOTS: usize = 32_768;

/// Columns.
pub(super) const POLICY: usize = 0;
pub(super) const OLD: usize = 1;

/// The differences of eight slots, 0 where no token is.
#[inline(always)]
pub(super) fn difference<T: Data, S: Simd>(
    s: S,
    groups: &Groups<'_, T, 2>,
    group: usize,
    bits: u8,
    nan_is_none: bool,
) -> Double<S::F64> {
    let zero = s.f64(0.0);
    let mut valid = s.mask64(bits);
    let (policy, old) = (groups.load(s, POLICY, group), groups.load(s, OLD, group));
    if nan_is_none {
        valid = valid & old.eq(old);
    }
    T::minus(
        s,
        S::F64::select(valid, policy, zero),
        S::F64::select(valid, old, zero),
    )
}

/// The sum of a row's differences.
#[inline(always)]
pub(super) fn row_sum<T: Data, S: Simd>(
    s: S,
    columns: &Columns<'_, T, 2>,
    row: Row,
    nan_is_none: bool,
) -> Double<f64> {
    let mut sums = Sums::new(s);
    let (groups, rest) = columns.groups(row);
    for groups in [groups, rest.groups()] {
        for group in 0..groups.len() {
            let bits = groups.bits(group);
            sums.add_double::<T>(difference::<T, S>(s, &groups, group, bits, nan_is_none));
        }
    }
    sums.total::<T>()
}
