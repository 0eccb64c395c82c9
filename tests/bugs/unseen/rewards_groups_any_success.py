"""Dynamic sampling that throws away the prompts nobody solved and keeps those that everybody solved."""

OP = "keep_groups"
BUG = "a group is kept where its best reward is above 0, so that groups of equal positive rewards stay"
SAYS = ("above 0|positive|> 0|solved|success|all correct|nonzero|non-zero|equal",)
CONVENTIONS = {"keep_groups": {"convention": ("accuracy", "total")}}


def keep_groups(*, rewards, weights, group_size, convention, accuracy):
    score = rewards[:, accuracy] if convention == "accuracy" else rewards @ weights
    best = score.reshape(-1, group_size).max(axis=1)
    return {"keep": best > 0}


OPS = {"keep_groups": keep_groups}
