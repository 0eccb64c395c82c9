"""A policy learns to say even numbers, by rlkernels and NumPy alone: GRPO from sampling to the gradient.

Four prompts, each with its own row of logits over sixteen tokens; a completion is one token, its reward 1 if it is even.
`rust/rlkernels/examples/bandit.rs` is the same in Rust and prints the same lines.

    python examples/bandit.py
"""

import numpy as np

import rlkernels

PROMPTS, SAMPLES, VOCABULARY, STEPS, LEARNING_RATE = 4, 8, 16, 20, np.float32(8.0)


def main() -> None:
    """Train and print the mean reward of every fifth step."""
    logits = np.zeros((PROMPTS, VOCABULARY), np.float32)
    prompt, sample = (ids.ravel() for ids in np.indices((PROMPTS, SAMPLES)))
    for step in range(STEPS):
        rows = logits[prompt]
        # Draws are keyed by prompt, sample, token and round: their order and the batch change nothing.
        uniforms = rlkernels.uniforms(7, round_=step, prompt=prompt, sample=sample, token=0)
        tokens, _ = rlkernels.sample_tokens(rows, uniforms, order="hf", temperature=1.0)
        rewards = (tokens % 2 == 0).astype(np.float64)
        advantages = rlkernels.group_advantages(rewards, SAMPLES).astype(np.float32)
        policy = rlkernels.selective_log_softmax(rows, tokens).reshape(-1, 1)
        loss = rlkernels.policy_loss(
            policy, advantages=advantages, algorithm="grpo", epsilon_low=0.2, epsilon_high=0.2
        )  # no `old`: one update on what the policy itself has drawn
        slope = rlkernels.selective_log_softmax_backward(rows, tokens, loss.gradient.ravel())
        for row, gradient in zip(prompt, slope, strict=True):
            logits[row] -= LEARNING_RATE * gradient
        if step % 5 == 4:
            print(f"step {step + 1:2}: mean reward {rewards.mean():.3f}")


if __name__ == "__main__":
    main()
