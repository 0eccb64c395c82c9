//! The sampler's definitions, by sorting and summing everything at every step, and calls that unwrap.

use rlkernels::sampling::{Batch, Filters, Logits, Order, Ties, filtered_logprobs, sample_tokens};

const INF: f64 = f64::INFINITY;

pub(crate) fn log_softmax(x: &[f64], temperature: f64) -> Vec<f64> {
    let most = x.iter().copied().fold(-INF, f64::max);
    let shifted: Vec<f64> = x.iter().map(|x| (x - most) / temperature).collect();
    let log_sum = shifted.iter().map(|z| z.exp()).sum::<f64>().ln();
    shifted.iter().map(|z| z - log_sum).collect()
}

/// The row with its bias and penalties, token by token.
pub(crate) fn penalised(x: &[f64], history: &[i64], batch: &Batch<'_>, f: &Filters) -> Vec<f64> {
    let generated = batch.generated.unwrap_or_default();
    let bias = batch.logit_bias.unwrap_or_default();
    let penalise = |(id, &x): (usize, &f64)| {
        let x = x + bias.get(id).copied().unwrap_or(0.0);
        let x = match history.contains(&(id as i64)) {
            true if x > 0.0 => x / f.repetition_penalty,
            true => x * f.repetition_penalty,
            false => x,
        };
        let count = generated.iter().filter(|&&one| one == id as i64).count();
        x - f.frequency_penalty * count as f64 - if count > 0 { f.presence_penalty } else { 0.0 }
    };
    x.iter().enumerate().map(penalise).collect()
}

/// `logits` with their penalty; `xtc` says whether the coin lets it act.
pub(crate) fn filtered(logits: &[f64], f: &Filters, xtc: bool, special: &[i64]) -> Vec<f64> {
    if f.temperature == 0.0 {
        let most = logits.iter().copied().fold(-INF, f64::max);
        let first = logits.iter().position(|&x| x == most).unwrap();
        return (0..logits.len())
            .map(|id| if id == first { 0.0 } else { -INF })
            .collect();
    }
    // What each of the libraries does with equals: a comparison, or the end of a sorted list.
    let (ties_k, ties_p) = match (f.ties, f.order) {
        (Ties::Library, Order::Hf) => (Equals::All, Equals::HigherFirst),
        (Ties::Library, Order::MlxLm) => (Equals::LowerFirst, Equals::All),
        (Ties::All, _) => (Equals::All, Equals::All),
        (Ties::LowerId, _) => (Equals::LowerFirst, Equals::LowerFirst),
    };
    // transformers leaves so many tokens in each filter, mlx-lm in min-p.
    let least = if f.order == Order::Hf {
        f.min_tokens_to_keep
    } else {
        1
    };
    let top_k = |x: &[f64]| {
        keep_ranked(x, ties_k, |rank, _| {
            f.top_k == 0 || rank < f.top_k.max(least)
        })
    };
    let top_p = |x: &[f64]| {
        keep_ranked(x, ties_p, |rank, before| {
            rank < least || f.top_p == 1.0 || before < f.top_p
        })
    };
    let ties_m = match (f.ties, f.order) {
        (Ties::All, _) => Equals::All,
        (Ties::Library, Order::MlxLm) => Equals::HigherFirst,
        _ => Equals::LowerFirst,
    };
    let min_p = |x: &[f64]| {
        let most = x.iter().copied().fold(-INF, f64::max);
        let likeliest = keep_ranked(x, ties_m, |rank, _| rank < f.min_tokens_to_keep);
        renormalised(x, |id, x| {
            x.exp() >= f.min_p * most.exp() || likeliest[id] > -INF
        })
    };
    let xtc = |x: &[f64]| {
        let above = x.iter().copied().filter(|x| x.exp() > f.xtc_threshold);
        let least = above.fold(INF, f64::min);
        renormalised(x, |id, x| {
            !xtc || x <= least || special.contains(&(id as i64))
        })
    };
    match f.order {
        Order::Hf => xtc(&min_p(&top_p(&top_k(&log_softmax(logits, f.temperature))))),
        Order::MlxLm => log_softmax(
            &top_k(&xtc(&min_p(&top_p(&log_softmax(logits, 1.0))))),
            f.temperature,
        ),
    }
}

fn renormalised(x: &[f64], stays: impl Fn(usize, f64) -> bool) -> Vec<f64> {
    let kept = x.iter().enumerate();
    let kept: Vec<f64> = kept
        .map(|(id, &x)| if stays(id, x) { x } else { -INF })
        .collect();
    log_softmax(&kept, 1.0)
}

#[derive(Clone, Copy, PartialEq)]
enum Equals {
    All,
    LowerFirst,
    HigherFirst,
}

fn keep_ranked(x: &[f64], equals: Equals, stays: impl Fn(usize, f64) -> bool) -> Vec<f64> {
    let mut ids: Vec<usize> = (0..x.len()).collect();
    if equals == Equals::HigherFirst {
        ids.reverse();
    }
    ids.sort_by(|&a, &b| x[b].total_cmp(&x[a]));
    let (mut kept, mut before, mut least) = (vec![-INF; x.len()], 0.0, INF);
    for (rank, id) in ids.into_iter().enumerate() {
        if stays(rank, before) {
            least = x[id];
        }
        if stays(rank, before) || (equals == Equals::All && x[id] == least) {
            kept[id] = x[id];
        }
        before += x[id].exp();
    }
    log_softmax(&kept, 1.0)
}

pub(crate) fn draw(logprobs: &[f64], u: f64) -> usize {
    let total: f64 = logprobs.iter().map(|x| x.exp()).sum();
    let mut sum = 0.0;
    logprobs
        .iter()
        .position(|x| {
            sum += x.exp();
            sum > u * total
        })
        .unwrap()
}

pub(crate) fn batch(logits: &[f64], vocabulary: usize) -> Batch<'_> {
    Batch {
        logits: Logits::F64(logits),
        rows: logits.len() / vocabulary,
        vocabulary,
        history: None,
        generated: None,
        logit_bias: None,
        xtc_coins: None,
        xtc_special_tokens: &[],
    }
}

pub(crate) fn logprobs(batch: &Batch<'_>, filters: &Filters) -> Vec<f64> {
    let mut out = vec![f64::NAN; batch.rows * batch.vocabulary];
    filtered_logprobs(batch, filters, &mut out).unwrap();
    out
}

pub(crate) fn samples(
    batch: &Batch<'_>,
    filters: &Filters,
    uniforms: &[f64],
) -> (Vec<i64>, Vec<f64>) {
    let (mut tokens, mut logprobs) = (vec![-1; batch.rows], vec![f64::NAN; batch.rows]);
    sample_tokens(batch, filters, uniforms, &mut tokens, &mut logprobs).unwrap();
    (tokens, logprobs)
}

/// Filters of every kind, in both orders.
pub(crate) fn settings() -> Vec<Filters> {
    let mut result = Vec::new();
    for order in [Order::Hf, Order::MlxLm] {
        let off = Filters::off(order);
        let some = [
            off,
            Filters { top_p: 0.95, ..off },
            Filters { top_k: 50, ..off },
            Filters {
                top_k: 50,
                top_p: 0.8,
                ties: Ties::LowerId,
                ..off
            },
            Filters {
                min_p: 0.99,
                min_tokens_to_keep: 40,
                ..off
            },
            Filters {
                top_k: 300,
                top_p: 0.8,
                ties: Ties::All,
                ..off
            },
            Filters {
                top_k: 9000,
                top_p: 0.5,
                temperature: 0.7,
                ..off
            },
            Filters {
                min_p: 0.3,
                temperature: 1.7,
                ..off
            },
            Filters {
                xtc_probability: 1.0,
                xtc_threshold: 1e-5,
                ..off
            },
            Filters {
                top_p: 0.9,
                min_p: 0.01,
                top_k: 700,
                xtc_probability: 1.0,
                xtc_threshold: 1e-4,
                repetition_penalty: 1.2,
                ..off
            },
        ];
        result.extend(some);
    }
    result
}
