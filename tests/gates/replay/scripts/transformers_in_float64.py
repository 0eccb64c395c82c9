"""Write a model of transformers with random weights in float64 and its logits: FOLDER of a configuration, OUT, IDS.npy."""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

TIED = ("cohere", "gemma2")  # whose head is the embedding


def main(folder: str, out: str, ids: str) -> None:
    """Build, compute and write."""
    torch.float32 = torch.float = torch.float64  # transformers rounds norms and angles to this
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder)
    config.torch_dtype = config.dtype = torch.float64
    config.tie_word_embeddings = config.tie_word_embeddings or config.model_type in TIED
    config._experts_implementation = "eager"  # the default has no float64
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3)
        logits = model(torch.tensor(np.load(ids))).logits.numpy()
    model.save_pretrained(out)
    np.save(Path(out) / "logits.npy", logits)


main(*sys.argv[1:])
