//! The same test on every instruction set, numbers that are the same on every machine, and a digest of results.
#![allow(unreachable_pub)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use rlkernels::isa::{self, Isa};
use rlkernels::parallel;

static TURN: Mutex<()> = Mutex::new(());

/// The choices of the whole process. A test that makes one waits for its turn, and what was chosen before is restored in
/// the end.
pub struct Process {
    isa: Isa,
    threads: usize,
    _turn: MutexGuard<'static, ()>,
}

#[allow(clippy::unused_self)] // to have it is the permission
impl Process {
    pub fn mine() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            isa: isa::current(),
            threads: parallel::threads(),
            _turn: turn,
        }
    }

    pub fn set_threads(&self, count: usize) {
        parallel::set_threads(count).expect("a number of threads");
    }

    /// What `body` returns on every instruction set of this machine.
    pub fn on_every_isa<T>(&self, mut body: impl FnMut() -> T) -> Vec<(Isa, T)> {
        isa::available()
            .into_iter()
            .map(|isa| {
                isa::choose(isa).expect("available");
                (isa, body())
            })
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        isa::choose(self.isa).expect("was chosen");
        parallel::set_threads(self.threads).expect("was set");
    }
}

/// What `body` returns on every instruction set of this machine.
pub fn on_every_isa<T>(body: impl FnMut() -> T) -> Vec<(Isa, T)> {
    Process::mine().on_every_isa(body)
}

/// `SplitMix64` (Steele, Lea, Flood, 2014): a few lines, the same everywhere.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 * 2f64.powi(-53)
    }
}

/// FNV-1a over the bits of results.
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bits: u64) {
        for byte in bits.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn add_f64(&mut self, values: &[f64]) {
        for x in values {
            self.add(x.to_bits());
        }
    }

    pub fn add_f32(&mut self, values: &[f32]) {
        for x in values {
            self.add(u64::from(x.to_bits()));
        }
    }

    pub fn value(&self) -> u64 {
        self.0
    }
}
