//! Threads. Work is cut at fixed boundaries, so their number changes no bit; small work runs on the calling thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Error, Result};

/// The environment variable that sets the number of threads.
pub const VARIABLE: &str = "RLKERNELS_THREADS";

/// The most threads. A larger number is an error, so that a typing mistake does not start them all.
pub const MOST_THREADS: usize = 1024;

/// How often the caller polls whether the others have ended before it sleeps: for some 30 µs, longer than a part takes.
const POLLS: usize = 64;

/// How long a thread stays awake for the next call. One that slept comes some 50 µs late, and at times to the processor
/// of the thread that wakes it, where it waits until the call is over: calls of 130 µs took 81 to 130 µs on two threads
/// with 20 µs between them, and 66 with threads that stay awake. OpenMP's threads do so for milliseconds.
const LINGER: Duration = Duration::from_micros(100);

/// Calls on several threads so far.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// The number of threads; 0 until it is first asked for.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Threads that one kernel call uses at most: what [`set_threads`] or `RLKERNELS_THREADS` says, else the processors
/// that this process may use. An invalid value of `RLKERNELS_THREADS` is ignored; [`from_environment`] reports it.
#[must_use]
pub fn threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => {
            let count = from_environment()
                .unwrap_or(None)
                .unwrap_or_else(crate::build_info::cpus);
            THREADS.store(count, Ordering::Relaxed);
            count
        }
        count => count,
    }
}

/// The value of `RLKERNELS_THREADS`; `None` where it is not set or empty.
///
/// # Errors
/// It is no number between 1 and [`MOST_THREADS`].
pub fn from_environment() -> Result<Option<usize>> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.to_string_lossy();
    text.trim()
        .parse()
        .ok()
        .filter(|count| (1..=MOST_THREADS).contains(count))
        .map(Some)
        .ok_or_else(|| Error::UnknownChoice {
            argument: VARIABLE,
            found: text.into_owned(),
            legal: "the numbers 1 to 1024",
        })
}

/// Makes every later kernel call of this process use at most `count` threads, and returns what it was before.
///
/// # Errors
/// `count` is 0 or above [`MOST_THREADS`].
pub fn set_threads(count: usize) -> Result<usize> {
    if !(1..=MOST_THREADS).contains(&count) {
        return Err(Error::Threads {
            found: count,
            most: MOST_THREADS,
        });
    }
    let before = threads();
    THREADS.store(count, Ordering::Relaxed);
    Ok(before)
}

/// Calls `body` for every part: in order on the calling thread if `parallel` is false or only one thread is allowed, else
/// on the calling thread and the pool, in any order. A part holds its own piece of the output, so the order does not matter.
///
/// The calling thread polls for the end of the last parts instead of sleeping, and the others for the next call: when they
/// slept, Linux at times left two threads on one processor for a whole call, which then took as long as without threads.
pub(crate) fn for_each<P: Send>(
    parallel: bool,
    parts: impl Iterator<Item = P>,
    body: impl Fn(P) + Sync + Send,
) {
    let pool = if parallel && threads() > 1 {
        pool(threads() - 1)
    } else {
        None
    };
    let Some(pool) = pool else {
        return parts.for_each(body);
    };
    let parts: Vec<P> = parts.collect();
    let helpers = pool
        .current_num_threads()
        .min(parts.len().saturating_sub(1));
    let queue = Mutex::new(parts.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || std::iter::from_fn(next).map(&body).count();
    let at_work = AtomicUsize::new(0);
    pool.in_place_scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|_| {
                at_work.fetch_add(1, Ordering::Relaxed);
                let worked = work() > 0;
                at_work.fetch_sub(1, Ordering::Relaxed);
                if worked {
                    rayon::spawn(linger); // on this thread; one that came too late may keep the caller from its processor
                }
            });
        }
        CALLS.fetch_add(1, Ordering::Relaxed);
        work();
        for _ in 0..POLLS {
            if at_work.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now(); // one of the others may wait for this processor
        }
    });
}

/// Polls until the next call or for [`LINGER`].
fn linger() {
    let (call, start) = (CALLS.load(Ordering::Relaxed), Instant::now());
    while CALLS.load(Ordering::Relaxed) == call && start.elapsed() < LINGER {
        std::thread::yield_now(); // another thread, the calling one above all, may wait for this processor
    }
}

struct Pool {
    process: u32,
    threads: usize,
    workers: Arc<ThreadPool>,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

/// The pool of this process. A forked child has none of its parent's threads, so it makes its own pool. `None` where there
/// is no pool (another thread is making one, or the system gives no threads): the call then runs on its own thread.
fn pool(threads: usize) -> Option<Arc<ThreadPool>> {
    let mut slot = match POOL.try_lock() {
        Ok(slot) => slot,
        Err(std::sync::TryLockError::Poisoned(error)) => PoisonError::into_inner(error),
        Err(std::sync::TryLockError::WouldBlock) => return None,
    };
    let process = std::process::id();
    if let Some(found) = slot.as_ref()
        && found.process == process
        && found.threads == threads
    {
        return Some(Arc::clone(&found.workers));
    }
    let made = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|number| format!("rlkernels-{number}"))
        .build()
        .ok()?;
    let pool = Arc::new(made);
    let old = slot.replace(Pool {
        process,
        threads,
        workers: Arc::clone(&pool),
    });
    if let Some(old) = old
        && old.process != process
    {
        std::mem::forget(old); // its threads exist in the parent only: dropping it would wait for them forever
    }
    Some(pool)
}
