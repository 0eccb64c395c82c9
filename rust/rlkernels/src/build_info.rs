//! Version and profile of this build, and processors and features of this machine.

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `"release"` or `"debug"`, so that a benchmark can refuse a debug build.
pub const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// The number of processors that this process may use; 1 if unknown.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The instruction-set features of this machine that the kernels can use, detected at run time.
#[must_use]
pub fn features() -> Vec<&'static str> {
    detected()
        .into_iter()
        .filter_map(|(name, found)| found.then_some(name))
        .collect()
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Vec<(&'static str, bool)> {
    use std::arch::is_x86_feature_detected as has;
    vec![
        ("sse2", has!("sse2")),
        ("sse4.2", has!("sse4.2")),
        ("avx", has!("avx")),
        ("f16c", has!("f16c")),
        ("fma", has!("fma")),
        ("avx2", has!("avx2")),
        ("avx512f", has!("avx512f")),
        ("avx512dq", has!("avx512dq")),
        ("avx512bw", has!("avx512bw")),
        ("avx512vl", has!("avx512vl")),
    ]
}

#[cfg(target_arch = "aarch64")]
fn detected() -> Vec<(&'static str, bool)> {
    use std::arch::is_aarch64_feature_detected as has;
    vec![
        ("neon", has!("neon")),
        ("fp16", has!("fp16")),
        ("bf16", has!("bf16")),
        ("sve", has!("sve")),
    ]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detected() -> Vec<(&'static str, bool)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_of_the_target_is_found() {
        let baseline = if cfg!(target_arch = "x86_64") {
            "sse2"
        } else {
            "neon"
        };
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert!(features().contains(&baseline), "{:?}", features());
        }
        assert!(cpus() >= 1);
    }
}
