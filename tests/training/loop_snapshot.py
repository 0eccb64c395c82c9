"""GRPO that takes the snapshot of the policy at the start of each epoch over the rollout."""

import torch_loop as base


def before_update(model, rollout, number):
    rollout["old"] = base.old_logps_of(model, rollout)


base.patch(before_update=before_update)

if __name__ == "__main__":
    base.main()
