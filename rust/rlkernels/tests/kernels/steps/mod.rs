//! Steps of a policy with drawn data, for the kernel and for the naive loss.

use rlkernels::policy_loss::{Convention, Loss, Signal, Step, policy_loss};
use rlkernels::rows::{Rows, Valid};

use crate::naive::loss::Naive;
use crate::variants::Numbers;

/// Padded arrays of six rows, and the same without padding.
pub(crate) struct Data {
    pub(crate) width: usize,
    pub(crate) lengths: Vec<i64>,
    pub(crate) policy: Vec<f64>,
    pub(crate) old: Vec<f64>,
    pub(crate) reference: Vec<f64>,
    pub(crate) advantages: Vec<f64>,
    pub(crate) weights: Vec<f64>,
}

impl Data {
    pub(crate) fn new(seed: u64, rows: usize, width: usize, spread: f64) -> Self {
        let mut numbers = Numbers::new(seed);
        let lengths = (0..rows)
            .map(|_| (numbers.unit() * (width as f64 + 1.0)) as i64)
            .collect();
        let mut draw = |scale: f64| -> Vec<f64> {
            (0..rows * width)
                .map(|_| scale * (numbers.unit() - 0.5))
                .collect()
        };
        let policy: Vec<f64> = draw(4.0).iter().map(|x| x - 3.0).collect();
        let near = |moves: Vec<f64>| policy.iter().zip(moves).map(|(p, m)| p + m).collect();
        let (old, reference) = (near(draw(spread)), near(draw(2.0 * spread)));
        let advantages = draw(3.0);
        let weights = draw(1.0).iter().map(|x| x + 1.0).collect();
        Self {
            width,
            lengths,
            policy,
            old,
            reference,
            advantages,
            weights,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.lengths.len()
    }

    /// Advantages and weights of rows: those of their first slots.
    pub(crate) fn of_rows(&self, values: &[f64]) -> Vec<f64> {
        values.iter().step_by(self.width).copied().collect()
    }

    pub(crate) fn naive(&self, by_row: bool) -> Naive {
        let cut = |values: &[f64], first_only: bool| -> Vec<Vec<f64>> {
            let row = |i: usize| {
                let slots = i * self.width..i * self.width + self.lengths[i] as usize;
                let first = values[i * self.width];
                values[slots]
                    .iter()
                    .map(|&x| if first_only { first } else { x })
                    .collect()
            };
            (0..self.rows()).map(row).collect()
        };
        Naive {
            policy: cut(&self.policy, false),
            old: cut(&self.old, false),
            reference: cut(&self.reference, false),
            advantages: cut(&self.advantages, by_row),
            weights: cut(&self.weights, by_row),
        }
    }

    pub(crate) fn run(
        &self,
        all: &Convention<'_>,
        by_row: bool,
        valid: Valid<'_>,
    ) -> (Loss, Vec<f64>) {
        let (a, w) = (self.of_rows(&self.advantages), self.of_rows(&self.weights));
        let step = Step {
            policy: &self.policy,
            old: Some(&self.old),
            reference: Some(&self.reference),
            advantages: if by_row {
                Signal::Rows(&a)
            } else {
                Signal::Slots(&self.advantages)
            },
            weights: Some(if by_row {
                Signal::Rows(&w)
            } else {
                Signal::Slots(&self.weights)
            }),
            rows: Rows::Padded {
                rows: self.rows(),
                width: self.width,
                valid,
            },
        };
        let mut gradient = vec![f64::NAN; self.policy.len()];
        let loss = policy_loss(&step, all, &mut gradient).expect("a good step");
        (loss, gradient)
    }
}
