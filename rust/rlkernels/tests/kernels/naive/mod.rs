//! Second implementations, straight from the definitions and too simple to doubt. Accurate enough for tame data only.
#![allow(unreachable_pub)]

pub mod loss;
pub mod sampling;

/// Mean of some values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation with n − ddof in the denominator.
pub(crate) fn std(values: &[f64], ddof: usize) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    (squares / (values.len() - ddof) as f64).sqrt()
}

/// (x − mean) / (std + eps) in every group, over what is no NaN; 0 for a NaN and in a group of equal values.
pub(crate) fn z_scores(values: &[f64], size: usize, ddof: usize, eps: f64) -> Vec<f64> {
    let mut out = Vec::new();
    for group in values.chunks(size) {
        let scored: Vec<f64> = group.iter().copied().filter(|x| !x.is_nan()).collect();
        let constant = scored.iter().all(|x| x == &scored[0]);
        out.extend(group.iter().map(|x| {
            if constant || x.is_nan() {
                0.0
            } else {
                (x - mean(&scored)) / (std(&scored, ddof) + eps)
            }
        }));
    }
    out
}

/// The greatest less the least of what is no NaN.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most - values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Schulman's k3 with the standard library's `exp_m1`; loses digits for small d.
pub(crate) fn k3(d: f64) -> f64 {
    d.exp_m1() - d
}

/// Longest first, ties by index, each into the bin that `prefer` names among (index, room) of those with room.
pub(crate) fn pack(
    lengths: &[i64],
    max_length: i64,
    prefer: impl Fn(&mut dyn Iterator<Item = (usize, i64)>) -> Option<(usize, i64)>,
) -> Vec<Vec<i64>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| (-lengths[i], i));
    let mut bins: Vec<(i64, Vec<i64>)> = Vec::new(); // (room, sequences)
    for i in order {
        let mut fits = bins
            .iter()
            .enumerate()
            .map(|(bin, (room, _))| (bin, *room))
            .filter(|(_, room)| *room >= lengths[i]);
        let bin = prefer(&mut fits).map_or(bins.len(), |(bin, _)| bin);
        if bin == bins.len() {
            bins.push((max_length, Vec::new()));
        }
        bins[bin].0 -= lengths[i];
        bins[bin].1.push(i as i64);
    }
    bins.into_iter().map(|(_, bin)| bin).collect()
}

/// log p and entropy at temperature τ, in the order of the definition.
pub(crate) fn log_softmax(logits: &[f64], temperature: f64) -> (Vec<f64>, f64) {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shifted: Vec<f64> = logits.iter().map(|x| (x - max) / temperature).collect();
    let log_sum = shifted.iter().map(|x| x.exp()).sum::<f64>().ln();
    let logprobs: Vec<f64> = shifted.iter().map(|x| x - log_sum).collect();
    let possible = logprobs.iter().filter(|x| **x > f64::NEG_INFINITY);
    let entropy = -possible.map(|x| x.exp() * x).sum::<f64>();
    (logprobs, entropy)
}

/// The entropy of a row with one greatest logit M, as log(1 + Σ e) + Σ e·(M − x)/τ / (1 + Σ e) over all logits but that:
/// nothing cancels, however small the terms are.
pub(crate) fn peaked_entropy(logits: &[f64], temperature: f64) -> f64 {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let others = logits.iter().filter(|x| **x < max && x.is_finite());
    let (mut sum, mut weighted) = (0.0, 0.0);
    for below in others.map(|x| (max - x) / temperature) {
        sum += (-below).exp();
        weighted += (-below).exp() * below;
    }
    sum.ln_1p() + weighted / (1.0 + sum)
}

/// First fit: the first bin with room.
pub(crate) fn first_fit_decreasing(lengths: &[i64], max_length: i64) -> Vec<Vec<i64>> {
    pack(lengths, max_length, |fits| fits.next())
}

/// Best fit: the bin with the least room, of several the first.
pub(crate) fn best_fit_decreasing(lengths: &[i64], max_length: i64) -> Vec<Vec<i64>> {
    pack(lengths, max_length, |fits| {
        fits.min_by_key(|&(bin, room)| (room, bin))
    })
}
