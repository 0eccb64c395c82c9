#!/bin/sh
# A user of a cluster: was this step of my run what its settings say? make_step.py stands for the hook in your trainer
# (docs/recorded-steps.md); its file is copied from the cluster and judged here, without your code.
# Run it in an empty environment: python -m venv env && . env/bin/activate && sh cluster_user.sh
# Exit code 1: the completion mask of this step is shifted.
set -e
paths=$(cd "$(dirname "$0")" && pwd)
pip install --quiet "$paths/../.."
python "$paths/../recorded_steps/make_step.py" step.safetensors --mistake mask
gates judge step.safetensors
