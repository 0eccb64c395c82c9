//! Which bin each sequence goes into.

/// How many sequences go into which bin, in the order of the sorted sequences.
#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    steps: Vec<(u32, u32)>, // (bin, number of sequences)
    pub(super) bins: usize,
}

impl Placement {
    pub(super) fn push(&mut self, bin: u32, count: u32) {
        self.steps.push((bin, count));
        self.bins = self.bins.max(bin as usize + 1);
    }

    /// Counting sort of the sequences by bin; stable, so a bin keeps the order of placement.
    pub(super) fn by_bin(&self, order: &[u32], indices: &mut [i64], offsets: &mut [i64]) {
        let mut next = vec![0u32; self.bins];
        for &(bin, count) in &self.steps {
            next[bin as usize] += count;
        }
        let mut end = 0u32;
        offsets[0] = 0;
        for (start, offset) in next.iter_mut().zip(&mut offsets[1..]) {
            (*start, end) = (end, end + *start);
            *offset = i64::from(end);
        }
        let mut rest = order;
        for &(bin, count) in &self.steps {
            let (these, after) = rest.split_at(count as usize);
            rest = after;
            let start = next[bin as usize] as usize;
            next[bin as usize] += count;
            for (slot, &index) in indices[start..start + these.len()].iter_mut().zip(these) {
                *slot = i64::from(index);
            }
        }
    }
}

/// How many of `count` sequences of this length fit into the room; of length 0, all.
pub(super) fn fitting(room: u64, length: u64, count: u32) -> u32 {
    match room.checked_div(length) {
        Some(fit) if fit < u64::from(count) => fit as u32,
        _ => count,
    }
}
