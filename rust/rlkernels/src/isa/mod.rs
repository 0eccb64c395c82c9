//! Which instruction set the kernels run on, and how one body reaches all of them.
//!
//! A kernel implements `Kernel` once, over the lanes of `Simd`; `dispatch` compiles it for every instruction set of
//! the target and runs it on the chosen one. Lanes, rounding and the order of every sum are fixed, so the choice changes
//! the speed and never a bit of the result.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod scatter;
mod wide;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::{Error, Result};
pub(crate) use lanes::{F32_LANES, F64_LANES, Kernel, Lanes, Mask, Simd, tree64};
pub(crate) use scatter::scatter;

/// The environment variable that forces an instruction set.
pub const VARIABLE: &str = "RLKERNELS_ISA";

/// An instruction set for which the kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Isa {
    /// One number at a time, on every machine.
    Scalar = 1,
    /// x86-64 with AVX2 and FMA.
    Avx2 = 2,
    /// x86-64 with AVX-512 F, DQ, BW and VL.
    Avx512 = 3,
    /// 64-bit ARM.
    Neon = 4,
}

impl Isa {
    /// All instruction sets, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// `"scalar"`, `"avx2"`, `"avx512"` or `"neon"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Whether this machine has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::Avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::Avx512::is_available(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::Neon::is_available(),
            #[allow(unreachable_patterns)] // every target lacks some
            _ => false,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&isa| isa as u8 == number)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| Error::UnknownChoice {
                argument: "isa",
                found: name.into(),
                legal: "\"scalar\", \"avx2\", \"avx512\", \"neon\"",
            })
    }
}

/// The instruction sets of this machine, slowest first; `Isa::Scalar` is always among them.
#[must_use]
pub fn available() -> Vec<Isa> {
    Isa::ALL
        .into_iter()
        .filter(|isa| isa.is_available())
        .collect()
}

/// The chosen instruction set's number; 0 until it is first asked for.
static CURRENT: AtomicU8 = AtomicU8::new(0);

/// The instruction set that kernels run on: the one that [`choose`] or `RLKERNELS_ISA` names, else the fastest.
///
/// An invalid or unavailable value of `RLKERNELS_ISA` is ignored; [`from_environment`] reports it.
#[must_use]
#[inline]
pub fn current() -> Isa {
    Isa::from_number(CURRENT.load(Ordering::Relaxed)).unwrap_or_else(first_choice)
}

#[cold]
fn first_choice() -> Isa {
    let isa = from_environment().unwrap_or(None).unwrap_or_else(fastest);
    CURRENT.store(isa as u8, Ordering::Relaxed);
    isa
}

fn fastest() -> Isa {
    available().pop().unwrap_or(Isa::Scalar)
}

/// The instruction set that `RLKERNELS_ISA` names; `None` where it is not set or empty.
///
/// # Errors
/// It names no instruction set, or one that this machine lacks.
pub fn from_environment() -> Result<Option<Isa>> {
    match std::env::var_os(VARIABLE) {
        Some(value) if !value.is_empty() => {
            let isa: Isa = value.to_string_lossy().parse()?;
            checked(isa).map(Some)
        }
        _ => Ok(None),
    }
}

/// Makes every later kernel call of this process run on `isa`, and returns what was chosen before.
///
/// # Errors
/// This machine lacks it.
pub fn choose(isa: Isa) -> Result<Isa> {
    let before = current();
    CURRENT.store(checked(isa)? as u8, Ordering::Relaxed);
    Ok(before)
}

fn checked(isa: Isa) -> Result<Isa> {
    if isa.is_available() {
        return Ok(isa);
    }
    let names: Vec<&str> = available().into_iter().map(Isa::name).collect();
    Err(Error::IsaUnavailable {
        found: isa.name(),
        available: names.join(", "),
    })
}

/// Runs `kernel` on the [`current`] instruction set.
#[inline]
#[allow(unsafe_code)] // the tokens
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    match current() {
        // SAFETY: `CURRENT` is written by `first_choice` and `choose` only, with an instruction set that is available.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::run(unsafe { avx512::Avx512::assume() }, kernel),
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::run(unsafe { avx2::Avx2::assume() }, kernel),
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::run(unsafe { neon::Neon::assume() }, kernel),
        _ => kernel.run(scalar::Scalar),
    }
}

/// Asks for the cache line of `words[index]` before it is needed; `index` may lie beyond the end. Changes no value.
#[inline(always)]
#[allow(unsafe_code)] // the intrinsic takes a pointer
pub(crate) fn prefetch<T>(words: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching never faults, wherever the pointer leads; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(words.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, index); // no stable intrinsic
}
