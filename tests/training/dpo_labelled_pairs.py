"""DPO on pairs that come with a label of the better answer."""

from trl_base import PAIRS, main

LABELS = [1, 1, 2, 1]  # 1: the first answer is better, 2: the second
FIRST = [PAIRS["chosen"][0], PAIRS["chosen"][1], PAIRS["rejected"][2], PAIRS["chosen"][3]]
SECOND = [PAIRS["rejected"][0], PAIRS["rejected"][1], PAIRS["chosen"][2], PAIRS["rejected"][3]]


def pairs():
    """Return the rows as DPO takes them."""
    rows = {"prompt": PAIRS["prompt"], "chosen": [], "rejected": []}
    for label, first, second in zip(LABELS, FIRST, SECOND, strict=True):
        better, worse = (first, second) if label else (second, first)
        rows["chosen"].append(better)
        rows["rejected"].append(worse)
    return rows


if __name__ == "__main__":
    main("dpo", pairs=pairs())
