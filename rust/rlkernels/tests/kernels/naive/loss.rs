//! Policy losses straight from their definitions: one token after the other, the gradient by differences.

use rlkernels::kl::Estimator;
use rlkernels::policy_loss::{Algorithm, CispoBound, Convention, DapoDenominator, KlRatio};

const ESTIMATORS: [Estimator; 3] = [Estimator::K1, Estimator::K2, Estimator::K3];
const KL_RATIOS: [KlRatio; 3] = [KlRatio::None, KlRatio::Token, KlRatio::Sequence];
const DENOMINATORS: [DapoDenominator; 3] = [
    DapoDenominator::Global,
    DapoDenominator::Group,
    DapoDenominator::Trl,
];

/// All that an algorithm reads, for six rows.
pub fn convention(algorithm: Algorithm, choice: usize) -> Convention<'static> {
    let mut all = Convention::new(algorithm);
    let has_bounds = !matches!(algorithm, Algorithm::Rloo | Algorithm::Sapo);
    if has_bounds {
        all.epsilon_high = Some(0.25);
    }
    if has_bounds && algorithm != Algorithm::Cispo {
        all.epsilon_low = Some(0.2);
        if algorithm != Algorithm::Gmpo && choice % 2 == 1 {
            all.delta = Some(1.5);
        }
    }
    match algorithm {
        Algorithm::DrGrpo => all.max_length = Some(11),
        Algorithm::BnpoTrl => all.micro_batches = Some(&[1, 2, 3]),
        Algorithm::Dapo | Algorithm::Cispo => {
            let denominator = DENOMINATORS[choice % 3];
            all.dapo_denominator = Some(denominator);
            all.group_size = (denominator == DapoDenominator::Group).then_some(2);
            all.tokens_in_step = (denominator == DapoDenominator::Trl).then_some(17.5);
        }
        _ => {}
    }
    if algorithm == Algorithm::Cispo {
        all.cispo_bound = Some([CispoBound::Relative, CispoBound::Absolute][choice % 2]);
    }
    if algorithm != Algorithm::Rloo && !choice.is_multiple_of(4) {
        all.beta = 0.3;
        all.kl_estimator = ESTIMATORS[choice % 3];
        all.kl_ratio = KL_RATIOS[choice / 3 % 3];
    }
    all
}

/// A step; a row is its tokens only.
#[derive(Debug, Clone)]
pub struct Naive {
    pub policy: Vec<Vec<f64>>,
    pub old: Vec<Vec<f64>>,
    pub reference: Vec<Vec<f64>>,
    /// Per token; the same for all of a row where the algorithm wants that.
    pub advantages: Vec<Vec<f64>>,
    pub weights: Vec<Vec<f64>>,
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1) as f64;
    values.sum::<f64>() / count
}

fn clipped(ratio: f64, advantage: f64, convention: &Convention<'_>) -> f64 {
    let low = 1.0 - convention.epsilon_low.unwrap_or(0.0);
    let high = 1.0 + convention.epsilon_high.unwrap_or(0.0);
    let capped = ratio.min(convention.delta.unwrap_or(f64::INFINITY));
    -(capped * advantage).min(ratio.clamp(low, high) * advantage)
}

fn estimate(policy: f64, reference: f64, estimator: Estimator) -> f64 {
    let d = reference - policy;
    match estimator {
        Estimator::K1 => -d,
        Estimator::K2 => d * d / 2.0,
        Estimator::K3 => d.exp() - 1.0 - d,
    }
}

impl Naive {
    /// The loss; what the papers hold constant is taken of `frozen`.
    pub fn loss(&self, frozen: &Self, convention: &Convention<'_>) -> f64 {
        let rows = self.policy.len();
        let mut loss = 0.0;
        for row in 0..rows {
            let tokens = self.policy[row].len();
            let differences = |step: &Self| -> Vec<f64> {
                (0..tokens)
                    .map(|t| step.policy[row][t] - self.old[row][t])
                    .collect()
            };
            let (d, d_frozen) = (differences(self), differences(frozen));
            let mean_ratio = mean(d.iter().copied()).exp();
            let mut sum = 0.0;
            for t in 0..tokens {
                let (a, w) = (self.advantages[row][t], self.weights[row][t]);
                let (r, lp) = (d[t].exp(), self.policy[row][t]);
                let l = match convention.algorithm {
                    Algorithm::Grpo | Algorithm::Dapo | Algorithm::BnpoTrl | Algorithm::DrGrpo => {
                        clipped(r, a, convention)
                    }
                    Algorithm::Gspo | Algorithm::Luspo => clipped(mean_ratio, a, convention),
                    Algorithm::GspoToken => {
                        let own = (lp - frozen.policy[row][t]).exp();
                        clipped(mean(d_frozen.iter().copied()).exp() * own, a, convention)
                    }
                    Algorithm::Rloo => -d.iter().sum::<f64>().exp() * a,
                    Algorithm::Cispo => {
                        let width = convention.epsilon_high.unwrap_or(f64::NAN);
                        let cap = match convention.cispo_bound {
                            Some(CispoBound::Absolute) => width,
                            _ => 1.0 + width,
                        };
                        -d_frozen[t].exp().min(cap) * a * lp
                    }
                    Algorithm::Sapo => {
                        let tau = if a > 0.0 { 1.0 } else { 1.05 };
                        -(4.0 / tau) / (1.0 + (-tau * (r - 1.0)).exp()) * a
                    }
                    Algorithm::Gmpo => {
                        let held = d.iter().map(|&d| {
                            if a > 0.0 {
                                d.min(convention.epsilon_high.unwrap_or(f64::NAN))
                            } else {
                                d.max(-convention.epsilon_low.unwrap_or(f64::NAN))
                            }
                        });
                        -mean(held).exp() * a
                    }
                };
                let factor = match convention.kl_ratio {
                    KlRatio::None => 1.0,
                    KlRatio::Token => r,
                    KlRatio::Sequence => mean_ratio,
                };
                let kl = if convention.beta == 0.0 {
                    0.0
                } else {
                    estimate(lp, self.reference[row][t], convention.kl_estimator)
                };
                sum += w * l + convention.beta * factor * kl;
            }
            loss += sum * self.share(row, convention);
        }
        loss
    }

    fn share(&self, row: usize, convention: &Convention<'_>) -> f64 {
        let rows = self.policy.len();
        let count = |range: std::ops::Range<usize>| -> f64 {
            self.policy[range].iter().map(Vec::len).sum::<usize>() as f64
        };
        let b = rows as f64;
        let share = match convention.algorithm {
            Algorithm::DrGrpo => 1.0 / (b * convention.max_length.unwrap_or(0) as f64),
            Algorithm::Luspo => 1.0 / b,
            Algorithm::BnpoTrl => {
                let sizes = convention.micro_batches.unwrap_or(&[]);
                let mut start = 0;
                let mut found = f64::NAN;
                for &size in sizes {
                    let end = start + size as usize;
                    if (start..end).contains(&row) {
                        found = 1.0 / (sizes.len() as f64 * count(start..end));
                    }
                    start = end;
                }
                found
            }
            Algorithm::Dapo | Algorithm::Cispo => match convention.dapo_denominator {
                Some(DapoDenominator::Trl) => 1.0 / convention.tokens_in_step.unwrap_or(0.0),
                Some(DapoDenominator::Group) => {
                    let size = convention.group_size.unwrap_or(1) as usize;
                    let start = row / size * size;
                    1.0 / ((rows / size) as f64 * count(start..start + size))
                }
                _ => 1.0 / count(0..rows),
            },
            _ => 1.0 / (b * count(row..row + 1)),
        };
        if self.policy[row].is_empty() {
            0.0
        } else {
            share
        }
    }

    /// The derivatives to the left and to the right of the policy's log-probability of a token.
    pub fn slopes(&self, row: usize, token: usize, convention: &Convention<'_>) -> [f64; 2] {
        const STEP: f64 = 1e-5;
        [-STEP, STEP].map(|step| {
            let moved = |by: f64| {
                let mut moved = self.clone();
                moved.policy[row][token] += by;
                moved.loss(self, convention)
            };
            // to the second order, from one side only
            (-3.0 * self.loss(self, convention) + 4.0 * moved(step / 2.0) - moved(step)) / step
        })
    }
}
