"""Run by a peer's own Python as `process.py FILE`: rolls one group out as often as it is asked to.

FILE defines `prepare(model, setup)`, which returns a call that rolls out once and returns how many tokens each row has.
Each line of the input is answered by one line. A line is either a set-up (an object; see `processes.py`) and answered by
an empty list, or the name of the shape that was set up last, and answered by the lengths. One process serves all shapes,
one after another, so that a peer's imports are paid for once and only one model of it is in memory.
"""

import json
import os
import runpy
import sys


def main():
    """Answer until the input ends."""
    import mlx.core as mx
    from mlx_lm.models import qwen3

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints goes to stderr
    prepare = runpy.run_path(sys.argv[1])["prepare"]
    name, roll = None, None
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, dict):
            model, roll = None, None
            mx.clear_cache()
            model = qwen3.Model(qwen3.ModelArgs(**asked["arguments"]))
            model.load_weights(asked["weights"])
            mx.eval(model.parameters())
            mx.random.seed(asked["seed"])
            name, roll = asked["name"], prepare(model, asked)
            said = []
        elif asked == name:
            said = roll()
        else:
            raise ValueError(f"asked to roll out {asked!r}, but {name!r} was set up last")
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
