"""Generate with mlx-lm's `batch_generate`: all rows of a step at once, without training."""


def train(job, probe):
    """Generate once for each step of the job."""
    import mlx.core as mx
    from mlx_lm import batch_generate, load
    from mlx_lm.sample_utils import make_sampler

    probe.use_mlx()
    model, tokenizer = load(job["folder"])
    sampler = make_sampler(temp=job["temperature"], top_p=job["top_p"])
    count = job["prompts_per_step"]
    rows = count * job["samples"]
    probe.send(
        "settings",
        settings={
            "samples": job["samples"],
            "prompts_per_step": count,
            "max_tokens": job["tokens"],
            "temperature": job["temperature"],
            "top_p": job["top_p"],
            "dtype": str(model.model.norm.weight.dtype),
            "rows_decoded_at_once": rows,
            "adapter": "none",
        },
    )

    def lengths(response):
        """Count the end token, which mlx-lm omits, of rows that end before the limit."""
        return [min(len(ids) + 1, job["tokens"]) for ids in response.token_ids]

    generate = probe.timed(batch_generate, lengths=lengths)
    mx.random.seed(job["seed"])
    probe.begin()
    for step in range(job["steps"]):
        first = step * count % len(job["prompts"])
        texts = [text for text in job["prompts"][first : first + count] for _ in range(job["samples"])]
        generate(
            model,
            tokenizer,
            [tokenizer.encode(text) for text in texts],
            max_tokens=job["tokens"],
            sampler=sampler,
            completion_batch_size=rows,
            prefill_batch_size=rows,
            return_token_ids=True,
        )
        probe.step()
