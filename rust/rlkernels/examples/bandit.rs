//! A policy learns to say even numbers: GRPO from sampling to the gradient, by these kernels alone.
//!
//! Four prompts, each with its own row of logits over sixteen tokens; a completion is one token, its reward 1 if it is even.
//! `examples/bandit.py` of the repository is the same in Python and prints the same lines.
//!
//! ```text
//! cargo run --example bandit
//! ```

use rlkernels::advantages::{Baseline, Convention as Advantages, EpsMode, Scale, group_advantages};
use rlkernels::logsoftmax::{selective_log_softmax, selective_log_softmax_backward};
use rlkernels::philox::Draw;
use rlkernels::policy_loss::{Algorithm, Convention, Signal, Step, policy_loss};
use rlkernels::rows::{Rows, Valid};
use rlkernels::sampling::{Batch, Filters, Logits, Order, sample_tokens};

const PROMPTS: usize = 4;
const SAMPLES: usize = 8;
const VOCABULARY: usize = 16;
const ROWS: usize = PROMPTS * SAMPLES;

fn main() -> rlkernels::Result<()> {
    let mut logits = [[0.0f32; VOCABULARY]; PROMPTS];
    for step in 0..20 {
        let rows: Vec<f32> = (0..ROWS).flat_map(|row| logits[row / SAMPLES]).collect();
        // Draws are keyed by prompt, sample, token and round: their order and the batch change nothing.
        let uniforms: Vec<f64> = (0..ROWS as u32)
            .map(|row| {
                let (prompt, sample) = (row / SAMPLES as u32, row % SAMPLES as u32);
                Draw {
                    token: 0,
                    sample,
                    prompt,
                    round: step,
                }
                .numbers(7)
                .0
            })
            .collect();
        let batch = Batch {
            logits: Logits::F32(&rows),
            rows: ROWS,
            vocabulary: VOCABULARY,
            history: None,
            generated: None,
            logit_bias: None,
            xtc_coins: None,
            xtc_special_tokens: &[],
        };
        let (mut tokens, mut drawn) = ([0; ROWS], [0.0; ROWS]);
        sample_tokens(
            &batch,
            &Filters::off(Order::Hf),
            &uniforms,
            &mut tokens,
            &mut drawn,
        )?;

        let rewards = tokens.map(|token| f64::from(token % 2 == 0));
        let convention = Advantages {
            scale: Scale::Group,
            ddof: 1,
            eps: 1e-4,
            eps_mode: EpsMode::Add,
            baseline: Baseline::Mean,
        };
        let mut advantages = [0.0; ROWS];
        group_advantages(&rewards, SAMPLES as i64, &convention, &mut advantages)?;
        let advantages = advantages.map(|a| a as f32);

        let mut policy = [0.0f32; ROWS];
        selective_log_softmax::<f32>(&rows, &tokens, VOCABULARY, 1.0, &mut policy, None)?;
        let batch = Step {
            policy: &policy,
            old: None, // one update on what the policy itself has drawn
            reference: None,
            advantages: Signal::Rows(&advantages),
            weights: None,
            rows: Rows::Padded {
                rows: ROWS,
                width: 1,
                valid: Valid::All,
            },
        };
        let grpo = Convention {
            epsilon_low: Some(0.2),
            epsilon_high: Some(0.2),
            ..Convention::new(Algorithm::Grpo)
        };
        let mut gradient = [0.0f32; ROWS];
        policy_loss(&batch, &grpo, &mut gradient)?;
        let mut slope = vec![0.0f32; ROWS * VOCABULARY];
        selective_log_softmax_backward::<f32>(
            &rows, &tokens, &gradient, None, VOCABULARY, 1.0, &mut slope,
        )?;
        for (row, slope) in slope.chunks_exact(VOCABULARY).enumerate() {
            for (logit, slope) in logits[row / SAMPLES].iter_mut().zip(slope) {
                *logit -= 8.0 * slope;
            }
        }
        if step % 5 == 4 {
            let mean = rewards.iter().sum::<f64>() / ROWS as f64;
            println!("step {:2}: mean reward {mean:.3}", step + 1);
        }
    }
    Ok(())
}
