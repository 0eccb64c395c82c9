"""The plain MLX loop without stored log-probabilities: each rollout's rows are scored by the policy that trains."""

import mlx_loop as base


def loss_of(model, batch, rows_of_step):
    logps = base.token_logps(model, batch["ids"])
    loss = base.policy_term(logps, logps, batch["mask"], batch["advantages"])
    loss = loss + base.SETTINGS["beta"] * base.kl_term(logps, batch["reference"])
    return base.aggregate(loss, batch["mask"], rows_of_step)


base.patch(loss_of=loss_of)

if __name__ == "__main__":
    base.main()
