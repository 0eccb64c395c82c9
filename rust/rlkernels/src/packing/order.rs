//! Sequences from long to short.

/// The most counters of a counting sort: 2²⁰ of 32 bits are 4 MB.
const MOST_COUNTERS: u64 = 1 << 20;

/// The sequences from long to short, equal lengths by index, and (length, number of sequences of that length) of each run.
pub(super) fn from_long_to_short(lengths: &[i64], max_length: u64) -> (Vec<u32>, Vec<(u64, u32)>) {
    let lengths = lengths
        .iter()
        .map(|&length| (length as u64).min(max_length));
    let mut runs: Vec<(u64, u32)> = Vec::new();
    if max_length >= MOST_COUNTERS || max_length / 16 > lengths.len() as u64 {
        let mut keyed: Vec<_> = lengths.map(|length| !length).zip(0u32..).collect(); // falling lengths are rising keys
        keyed.sort_unstable();
        for run in keyed.chunk_by(|a, b| a.0 == b.0) {
            runs.push((!run[0].0, run.len() as u32));
        }
        return (keyed.into_iter().map(|(_, index)| index).collect(), runs);
    }
    let mut next = vec![0u32; max_length as usize + 1];
    let mut order = vec![0u32; lengths.len()];
    for length in lengths.clone() {
        next[length as usize] += 1;
    }
    let mut start = 0;
    for (length, slot) in next.iter_mut().enumerate().rev() {
        let here = std::mem::replace(slot, start);
        if here > 0 {
            runs.push((length as u64, here));
            start += here;
        }
    }
    for (index, length) in lengths.enumerate() {
        let slot = &mut next[length as usize];
        order[*slot as usize] = index as u32;
        *slot += 1;
    }
    (order, runs)
}
