//! Writes a few numbers into a long row whose other elements are all equal, with non-temporal stores.

use crate::Float;

/// The fewest bytes of a row that is written with non-temporal stores. Such a row takes most of a second-level cache (1 MiB
/// on today's server cores), and a normal store first reads the line that it replaces from memory.
const LONG: usize = 1 << 19;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Sets all of `out` to `rest`, but for the numbers at these positions.
///
/// # Panics
/// Where a position lies beyond the end.
pub(crate) fn scatter<T: Float>(out: &mut [T], rest: T, numbers: impl Iterator<Item = (usize, T)>) {
    let fill = if size_of_val(out) < LONG {
        <[T]>::fill
    } else {
        past_caches
    };
    let line = LINE / size_of::<T>();
    let mut set = 0; // elements written so far
    for (position, number) in numbers {
        if position >= set {
            let start = position / line * line;
            fill(&mut out[set..start], rest);
            set = out.len().min(start + line);
            out[start..set].fill(rest);
        }
        out[position] = number;
    }
    fill(&mut out[set..], rest);
    fence();
}

/// Fills `out` with non-temporal stores. [`fence`] has to follow.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // the intrinsic takes a pointer
fn past_caches<T: Float>(out: &mut [T], number: T) {
    use std::arch::x86_64::{__m128i, _mm_stream_si128};

    #[repr(align(64))]
    #[derive(Clone, Copy)]
    struct Line([__m128i; 4]);

    // SAFETY: `T` is `f32` or `f64`, so 64 bytes that are aligned as a line hold whole numbers, any bytes are a line and
    // any bytes of a line are numbers.
    let (head, lines, tail) = unsafe { out.align_to_mut::<Line>() };
    head.fill(number);
    let Some(first) = lines.first_mut() else {
        return tail.fill(number);
    };
    let numbers = std::ptr::from_mut(first).cast::<T>();
    for index in 0..LINE / size_of::<T>() {
        // SAFETY: within the first line, as above.
        unsafe { numbers.add(index).write(number) };
    }
    let full = lines[0];
    for Line(line) in &mut lines[1..] {
        for (to, from) in line.iter_mut().zip(full.0) {
            // SAFETY: a quarter of a line is aligned to 16 bytes; SSE2 is part of x86-64.
            unsafe { _mm_stream_si128(to, from) };
        }
    }
    tail.fill(number);
}

/// Fills `out`: other machines have no stable intrinsic for non-temporal stores.
#[cfg(not(target_arch = "x86_64"))]
fn past_caches<T: Float>(out: &mut [T], number: T) {
    out.fill(number);
}

/// Makes non-temporal stores visible to other threads before all later stores.
#[allow(unsafe_code)] // every intrinsic is unsafe
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64; it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Float>(len: usize, offset: usize) {
        let mut memory = vec![T::narrow(f64::NAN); len + offset];
        let out = &mut memory[offset..];
        let mut at = vec![
            0,
            1,
            7,
            8,
            15,
            16,
            63,
            64,
            60_000,
            60_001,
            len - len.min(9),
            len - len.min(1),
        ];
        at.retain(|&position| position < len);
        at.sort_unstable();
        let number = |position: usize| T::narrow(position as f64);
        scatter(
            out,
            T::narrow(-1.0),
            at.iter().map(|&position| (position, number(position))),
        );
        for (position, &found) in out.iter().enumerate() {
            let want = if at.contains(&position) {
                position as f64
            } else {
                -1.0
            };
            assert_eq!(
                found.widen(),
                want,
                "{position} of {len} {} from {offset}",
                T::NAME
            );
        }
    }

    #[test]
    fn every_number_is_where_it_belongs() {
        for offset in 0..4 {
            for len in [0, 1, 7, 8, 9, 100, LONG / 8 - 1, LONG / 8, LONG / 8 + 13] {
                check::<f64>(len, offset);
            }
            for len in [0, 1, 15, 16, 17, 100, LONG / 4 - 1, LONG / 4, LONG / 4 + 13] {
                check::<f32>(len, offset);
            }
        }
    }
}
