//! What this machine can do at best, as one line of JSON: bandwidth by working set, fused multiply-adds by type.
//!
//! Each figure is the best of many repeats. Bytes count once per read and once per write, as a kernel's do. Needs no
//! crate: `rustc --edition 2024 -O -C target-cpu=native roofline.rs` builds it.
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const KIB: usize = 1024;
/// Working sets in bytes, all threads together: within the level that names it, "memory" far above any cache.
const SETS: [(&str, usize); 4] = [
    ("l1", 24 * KIB),
    ("l2", 512 * KIB),
    ("l3", 8 * KIB * KIB),
    ("memory", 160 * KIB * KIB),
];
/// Of which the best counts.
const ROUNDS: usize = 100;
/// Of one round.
const SECONDS: f64 = 3e-3;
/// Bytes that one call goes through at least, so that the call itself costs nothing.
const ENOUGH: usize = 1024 * KIB;
/// Bytes of independent sums or products: 16 registers of 64 bytes hide a latency of 4 cycles on 2 units.
const REGISTERS: usize = 16 * 64;
const STEPS: usize = 4096;

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let counts: &[usize] = if cores > 1 { &[1, cores] } else { &[1] };
    let mut bandwidths = Vec::new();
    let mut peaks = Vec::new();
    for threads in counts {
        for (level, bytes) in SETS {
            let read = read(*threads, bytes);
            let copy = copy(*threads, bytes);
            bandwidths.push(format!(
                r#"{{"threads": {threads}, "level": "{level}", "bytes": {bytes}, "reading": {read:.4e}, "copying": {copy:.4e}}}"#
            ));
        }
        let single = (threads * REGISTERS / 4 * STEPS * 2) as f64 / best(*threads, || single);
        let double = (threads * REGISTERS / 8 * STEPS * 2) as f64 / best(*threads, || double);
        peaks.push(format!(
            r#"{{"threads": {threads}, "float32": {single:.4e}, "float64": {double:.4e}}}"#
        ));
    }
    println!(
        r#"{{"bandwidth": [{}], "peak": [{}]}}"#,
        bandwidths.join(", "),
        peaks.join(", ")
    );
}

/// Bytes per second of reading a working set.
fn read(threads: usize, bytes: usize) -> f64 {
    let words = bytes / 8 / threads;
    let passes = ENOUGH.div_ceil(words * 8);
    let seconds = best(threads, || {
        let data = filled(words);
        move || {
            black_box(sum(black_box(&data), passes));
        }
    });
    (threads * passes * words * 8) as f64 / seconds
}

/// Bytes per second, read and written, of copying one half of a working set onto the other.
fn copy(threads: usize, bytes: usize) -> f64 {
    let words = bytes / 16 / threads;
    let passes = ENOUGH.div_ceil(words * 16);
    let seconds = best(threads, || {
        let source = filled(words);
        let mut target = filled(words);
        move || {
            for _ in 0..passes {
                black_box(&mut target).copy_from_slice(black_box(&source));
            }
        }
    });
    (threads * passes * words * 16) as f64 / seconds
}

/// Ones, on huge pages where the system gives them on request: NumPy asks for them for its large arrays too.
fn filled(words: usize) -> Vec<u64> {
    let mut data = Vec::with_capacity(words);
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4 * KIB;
        const HUGE_PAGE_ADVICE: i32 = 14;
        unsafe extern "C" {
            fn madvise(address: *mut u8, bytes: usize, advice: i32) -> i32;
        }
        let start = data.as_mut_ptr() as usize;
        let (first, end) = (
            start.next_multiple_of(PAGE),
            (start + words * 8) / PAGE * PAGE,
        );
        if end > first {
            // SAFETY: [first, end) lies within the allocation of `data`; the advice changes no content of memory.
            let _ = unsafe { madvise(first as *mut u8, end - first, HUGE_PAGE_ADVICE) };
        }
    }
    data.resize(words, 1);
    data
}

/// Least seconds of one call, all threads working at once: they start together, and the last one to end counts.
fn best<W: FnMut()>(threads: usize, make: impl Fn() -> W + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let calls = AtomicUsize::new(1);
    let spans: Vec<Vec<(Instant, Instant)>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut work = make();
                    work();
                    let start = Instant::now();
                    work();
                    let wanted = SECONDS / start.elapsed().as_secs_f64().max(1e-9);
                    calls.fetch_max(wanted as usize, Ordering::Relaxed);
                    let mut spans = Vec::with_capacity(ROUNDS);
                    for _ in 0..ROUNDS {
                        barrier.wait();
                        let start = Instant::now();
                        for _ in 0..calls.load(Ordering::Relaxed) {
                            work();
                        }
                        spans.push((start, Instant::now()));
                    }
                    spans
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a probe's thread ended early"))
            .collect()
    });
    let round = |index: usize| {
        let start = spans.iter().map(|thread| thread[index].0).min();
        let end = spans.iter().map(|thread| thread[index].1).max();
        (end.expect("a thread") - start.expect("a thread")).as_secs_f64()
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min) / calls.into_inner() as f64
}

fn sum(data: &[u64], passes: usize) -> u64 {
    let mut sums = [0_u64; REGISTERS / 8];
    let (chunks, rest) = data.as_chunks::<{ REGISTERS / 8 }>();
    for _ in 0..passes {
        for chunk in black_box(chunks) {
            for (total, value) in sums.iter_mut().zip(chunk) {
                *total = total.wrapping_add(*value);
            }
        }
    }
    sums.iter()
        .chain(rest)
        .fold(0, |total, value| total.wrapping_add(*value))
}

fn single() {
    let (factor, term) = black_box((0.999_f32, 0.001_f32));
    let mut values = black_box([1.0_f32; REGISTERS / 4]);
    for _ in 0..STEPS {
        for value in &mut values {
            *value = value.mul_add(factor, term);
        }
    }
    black_box(values);
}

fn double() {
    let (factor, term) = black_box((0.999_f64, 0.001_f64));
    let mut values = black_box([1.0_f64; REGISTERS / 8]);
    for _ in 0..STEPS {
        for value in &mut values {
            *value = value.mul_add(factor, term);
        }
    }
    black_box(values);
}
