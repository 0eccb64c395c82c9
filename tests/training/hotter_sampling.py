"""The plain MLX loop at temperature 1.5."""

import mlx.core as mx
import mlx_loop as base


base.SETTINGS["temperature"] = 1.5


def token_logps(model, ids):
    logits = model(ids[:, :-1]).astype(mx.float32)
    logps = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return mx.take_along_axis(logps, ids[:, 1:, None], axis=-1)[..., 0] / base.SETTINGS["temperature"]


base.patch(token_logps=token_logps)

if __name__ == "__main__":
    base.main()
