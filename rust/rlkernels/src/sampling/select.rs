//! Where top-k and top-p cut, found without sorting a row.

use std::cmp::Ordering;

use super::buckets::Buckets;
use super::cut::{Candidate, Cut};
use super::filters::Tied;
use super::passes::{BLOCK, Weight};
use super::scan::{Extent, SCAN, Scan};

/// Values farther below the largest than this many nats share the last bucket: together they weigh less than 2⁻⁴⁷.
const DEEPEST: f64 = 46.0; // 2^18 · e^-46 = 2.8e-15

/// Candidates up to which sorting is cheaper than halving.
const SORTED: usize = 64;

/// Which of two tokens comes first.
type Order = fn(&Candidate, &Candidate) -> Ordering;

/// Likelier first, then the lower position.
fn lower_first(a: &Candidate, b: &Candidate) -> Ordering {
    by_value(a, b).then(a.position.cmp(&b.position))
}

/// Likelier first, then the higher position.
fn higher_first(a: &Candidate, b: &Candidate) -> Ordering {
    by_value(a, b).then(b.position.cmp(&a.position))
}

fn by_value(a: &Candidate, b: &Candidate) -> Ordering {
    // No value is NaN; `total_cmp` would tell −0 from 0.
    b.value.partial_cmp(&a.value).unwrap_or(Ordering::Equal)
}

/// The k-th token of the row, and in `best` the first k in any order; `None` where no more than k can be drawn.
///
/// Values above a bound that k of them exceed stream past the best k so far. A value equal to the worst of these has a
/// higher position, so it is no better, and blocks without a greater one are skipped in lanes. O(V + k) whatever the
/// order of the values: 2k candidates are cut down to k at a time.
pub(super) fn top_k<E: Scan>(
    values: &[E],
    k: usize,
    best: &mut Vec<Candidate>,
) -> Option<Candidate> {
    if k >= values.len() {
        return None;
    }
    let most = (2 * k).max(BLOCK);
    let mut threshold = E::below_kth(values, k);
    let mut next = 0;
    best.clear();
    while let Some(block) = E::next_block_above(values, next, threshold) {
        push_above(values, block, threshold, best);
        if best.len() >= most {
            cut_down(best, k);
            threshold = values[best[k - 1].position as usize];
        }
        next = block + 1;
    }
    if best.len() < k || (best.len() == k && threshold == E::NONE) {
        return None; // none was ever left out
    }
    cut_down(best, k);
    best.get(k - 1).copied()
}

/// Where top-k cuts, given what it found.
pub(super) fn top_k_cut<E: Scan>(
    values: &[E],
    best: &[Candidate],
    last: &Candidate,
    tied: Tied,
) -> Cut {
    if tied != Tied::Higher {
        return last.cut(tied, values.len());
    }
    let count = best.iter().filter(|one| one.value == last.value).count();
    let on_it = |&position: &usize| values[position].widen() == last.value;
    let mut from_the_end = (0..values.len()).rev().filter(on_it);
    let first = from_the_end.nth(count - 1).unwrap_or(0); // as many are on it as `best` holds, or more
    Cut {
        value: last.value,
        tied: first..values.len(),
    }
}

/// The tokens at least as likely as the one at `position`, in id order.
pub(super) fn at_least<E: Scan>(values: &[E], position: u32, found: &mut Vec<Candidate>) {
    let below = values[position as usize].next_below();
    let mut next = 0;
    found.clear();
    while let Some(block) = E::next_block_above(values, next, below) {
        push_above(values, block, below, found);
        next = block + 1;
    }
}

/// Appends the tokens of a block that are above a threshold.
fn push_above<E: Scan>(values: &[E], block: usize, threshold: E, found: &mut Vec<Candidate>) {
    let start = block * SCAN;
    let end = values.len().min(start + SCAN);
    for (position, &value) in (start..end).zip(&values[start..end]) {
        if value > threshold {
            found.push(Candidate {
                value: value.widen(),
                weight: 0.0,
                position: position as u32,
            });
        }
    }
}

/// Keeps the best k, the worst of them last.
fn cut_down(best: &mut Vec<Candidate>, k: usize) {
    best.select_nth_unstable_by(k - 1, lower_first);
    best.truncate(k);
}

/// What top-p needs beside its arguments: candidates twice, and the buckets' sums.
pub(super) type Work<'a> = (
    &'a mut Vec<Candidate>,
    &'a mut Vec<Candidate>,
    &'a mut Vec<f64>,
);

/// The token at which the mass of the likeliest reaches `p` of the whole; `None` where it never does, by rounding.
pub(super) fn top_p<E: Scan>(
    values: &[E],
    extent: &Extent,
    weight: Weight,
    p: f64,
    tied: Tied,
    (candidates, halves, sums): Work<'_>,
) -> Option<Cut> {
    let order = if tied == Tied::Higher {
        higher_first
    } else {
        lower_first
    };
    if values.len() <= BLOCK {
        // Emptying the buckets would take longer than looking at every token.
        let mut weights = [0.0; BLOCK];
        let total = weight.of_block(values, &mut weights);
        candidates.clear();
        for (position, (value, &weight)) in values.iter().zip(&weights).enumerate() {
            candidates.push(Candidate {
                value: value.widen(),
                weight,
                position: position as u32,
            });
        }
        let last = reach(candidates, halves, order, p * total)?;
        return Some(last.cut(tied, values.len()));
    }
    let depth = (extent.most - extent.least).min(DEEPEST * weight.temperature);
    let buckets = Buckets::new(weight, depth);
    let total = buckets.sums(values, sums);
    let target = p * total;
    let mut before = 0.0;
    let bucket = sums.iter().position(|sum| {
        let reached = before + sum >= target && *sum > 0.0;
        if !reached {
            before += sum;
        }
        reached
    })?;
    candidates.clear();
    buckets.members(values, bucket, |position, value, weight| {
        candidates.push(Candidate {
            value,
            weight,
            position,
        });
    });
    let last = reach(candidates, halves, order, target - before)?;
    Some(last.cut(tied, values.len()))
}

/// The candidate at which the weights of the likeliest reach `target`, or the last one.
///
/// Halves the candidates at their median until few are left. They stay in the order of their positions, in which they
/// are summed, so the result depends on nothing else.
fn reach(
    candidates: &mut Vec<Candidate>,
    halves: &mut Vec<Candidate>,
    order: Order,
    mut target: f64,
) -> Option<Candidate> {
    while candidates.len() > SORTED {
        halves.clone_from(candidates);
        let middle = halves.len() / 2;
        let (_, &mut median, _) = halves.select_nth_unstable_by(middle, order);
        let upper = |candidate: &Candidate| order(candidate, &median) != Ordering::Greater;
        let mass: f64 = candidates
            .iter()
            .filter(|c| upper(c))
            .map(|c| c.weight)
            .sum();
        if mass >= target {
            candidates.retain(upper);
        } else {
            target -= mass;
            candidates.retain(|candidate| !upper(candidate));
        }
    }
    candidates.sort_unstable_by(order);
    let mut mass = 0.0;
    let reached = candidates.iter().find(|candidate| {
        mass += candidate.weight;
        mass >= target
    });
    reached.or(candidates.last()).copied()
}
