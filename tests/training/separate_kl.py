"""The plain MLX loop with the KL term kept apart from the policy term, so that both can be logged."""

import mlx_loop as base


base.SETTINGS["beta"] = 0.2


def loss_of(model, batch, rows_of_step):
    logps = base.token_logps(model, batch["ids"])
    policy = base.policy_term(logps, batch["old"], batch["mask"], batch["advantages"])
    kl = base.kl_term(logps, batch["reference"]).sum() / (rows_of_step * base.SETTINGS["max_new_tokens"])
    return base.aggregate(policy, batch["mask"], rows_of_step) + base.SETTINGS["beta"] * kl


base.patch(loss_of=loss_of)

if __name__ == "__main__":
    base.main()
