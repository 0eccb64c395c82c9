//! The conventions that libraries differ in, and the name each has here. This module holds no code.
//!
//! Notation: B completions (rows), G per prompt, T positions; `lp` the policy's log-probabilities, `old` the behaviour
//! policy's, `ref` the reference's; m the mask, 1 on completion tokens with the first end-of-sequence included; nᵢ = Σₜ m;
//! A the advantages; D = lp − old; d = ref − lp. Log-probabilities are in nats.
//!
//! # What holds for every kernel
//! * **Masks select.** A masked slot is never read into a result, whatever it holds: NaN · 0 is NaN. Its gradient is +0.
//! * **Overflow is +inf**, never NaN and never a silent clamp. A NaN that comes in where it counts comes out as the one
//!   positive quiet NaN.
//! * **Scalars are rounded once** to the data's type (ε, δ, β, τ, p), then used exactly.
//! * **A clip, a filter or a threshold acts strictly outside its bound.**
//! * **The same bits** come out of every instruction set and of any number of threads: lanes, fused multiply-adds and the
//!   order of every sum are fixed.
//! * **Accuracy**: |error| ≤ k · 2u · S with k = 4, u = 2⁻²⁴ for `f32` data and k = 8, u = 2⁻⁵³ for `f64` data. S is the
//!   scale of the result: |value| where nothing cancels, Σ|terms| / denominator for sums, max|R| / divisor for advantages.
//!
//! # Advantages
//! | convention | formula | used by |
//! |---|---|---|
//! | group z-score, [`EpsMode::Add`](crate::advantages::EpsMode) | (R − mean) / (std + ε) | TRL: ddof 1, ε 1e-4; mlx-lm-lora: ddof 0 |
//! | group z-score, `EpsMode::Inside` | (R − mean) / √(var + ε) | mlxrl: ddof 0, ε 1e-8 |
//! | group z-score, `EpsMode::Threshold` | (R − mean) / std, 0 where std < ε | rlox: ddof 0, ε 1e-8 |
//! | [`Scale::Batch`](crate::advantages::Scale) | the divisor is the std of the whole batch's raw rewards | TRL `scale_rewards="batch"` |
//! | `Scale::None` | R − mean | Dr. GRPO (arXiv 2503.20783) |
//! | [`Baseline::LeaveOneOut`](crate::advantages::Baseline) | R − mean of the others | RLOO (arXiv 2402.14740) |
//!
//! A group whose scored rewards are all equal gives exactly 0, by comparison: a rounding residue is never amplified. A NaN
//! reward means "not scored": it enters no mean and no std, and its advantage is 0. The presets differ by 15.5% at G = 4.
//!
//! # KL to the reference
//! | name | per token | remark |
//! |---|---|---|
//! | k1 | −d | unbiased, high variance, may be negative |
//! | k2 | d²/2 | low variance, biased |
//! | k3 | eᵈ − 1 − d | unbiased, never negative (Schulman 2020) |
//! | full | Σᵥ pᵥ (log pᵥ − log qᵥ) | needs the whole distribution of both |
//!
//! k3 is the series Σ_{k≥2} dᵏ/k! for |d| ≤ 2: `expm1(d) − d` loses a relative u/|d| and returns 0 at 1e-8. `kl_ratio`
//! multiplies a token's estimate by nothing, by its own ratio eᴰ, or by the sequence's exp(mean D).
//!
//! # Ratios
//! * token: rₜ = exp(Dₜ)
//! * `seq_mean`: exp(Σ m D / nᵢ), the geometric mean of GSPO (arXiv 2507.18071)
//! * `seq_sum`: exp(Σ m D), the product of RLOO and of truncated or masked importance sampling per sequence
//!
//! # Policy losses (minimised)
//! The variants of [`Algorithm`](crate::policy_loss::Algorithm) say what each is; docs/definitions.md, "Policy losses by
//! name", has the formulas.
//!
//! `old = None` is on-policy: every ratio is 1 in value and alive in the gradient.
//!
//! # Off-policy corrections
//! With r = exp(old − sampling): truncated (`tis`) min(max(r, c_min), c_max); masked (`mis`) r inside [c_min, c_max], ends
//! included, else 0. The weights are constants and change no denominator. A NaN sampling log-probability is a difference
//! of 0.
//!
//! # Sampling
//! | order | filters, each on the distribution renormalised over the survivors |
//! |---|---|
//! | `hf` | bias, penalties → temperature → top-k → top-p → min-p → XTC |
//! | `mlx-lm` | bias, penalties → top-p → min-p → XTC → top-k → temperature |
//!
//! [`Ties`](crate::sampling::Ties) says which of equally likely tokens top-k and top-p keep; one token always stays. The token drawn by u is the least k with C_k > u · C_V,
//! C the running sum in id order. Draws come from Philox 4x32-10 with key = seed and counter = (token, sample, prompt,
//! round), so they do not depend on the batch.
//!
//! # Packing
//! First-fit-decreasing and best-fit-decreasing; among equal lengths the lower index first, among equally full bins the
//! first one opened. An over-long sequence is an error unless truncation or pieces are asked for by name.
