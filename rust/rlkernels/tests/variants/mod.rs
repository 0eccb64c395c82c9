//! The same test on every instruction set, numbers that are the same on every machine, and a digest of results.
#![allow(dead_code, missing_docs, unreachable_pub)] // every test file uses its own part

use std::sync::Mutex;

use rlkernels::isa::{self, Isa};

/// The choice of an instruction set is one of the whole process, so tests that choose wait for one another.
static CHOOSING: Mutex<()> = Mutex::new(());

/// What `body` returns on every instruction set of this machine; the choice before is restored.
pub fn on_every_isa<T>(mut body: impl FnMut() -> T) -> Vec<(Isa, T)> {
    let _guard = CHOOSING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = isa::current();
    let results = isa::available()
        .into_iter()
        .map(|isa| {
            isa::choose(isa).expect("available");
            (isa, body())
        })
        .collect();
    isa::choose(before).expect("was chosen");
    results
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
