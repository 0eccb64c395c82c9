"""Measure the floating-point operations per second of a matrix product in MLX and NumPy."""

SIZE = 1024
ROUNDS = 5


def train(job, probe):
    """Send the best rate as `peak`."""
    import time

    import numpy as np

    def best(multiply):
        multiply()
        taken = []
        for _ in range(job.get("rounds", ROUNDS)):
            start = time.perf_counter()
            multiply()
            taken.append(time.perf_counter() - start)
        return 2.0 * SIZE**3 / min(taken)

    plain = np.ones((SIZE, SIZE), np.float32)
    rates = {"numpy float32": best(lambda: plain @ plain)}
    import mlx.core as mx

    for name in ("float32", "bfloat16", "float16"):
        if name != "float32" and mx.default_device() == mx.Device(mx.cpu):
            continue  # slower there, by seconds
        ones = mx.ones((SIZE, SIZE), getattr(mx, name))
        rates[f"mlx {name}"] = best(lambda a=ones: mx.eval(a @ a))
    probe.send("peak", rates=rates)
