#!/bin/sh
# The author of a library in torch: which of my functions is not the formula? TORCH_PYTHON has torch and the library.
# Run it in an empty environment: python -m venv env && . env/bin/activate && sh torch_author.sh
# Exit code 1: the file has a mistake, which the verdict names.
set -e
paths=$(cd "$(dirname "$0")" && pwd)
pip install --quiet "$paths/../.."
gates doctor --python "${TORCH_PYTHON:-python}"
gates check "$paths/torch_kl.py" --python "${TORCH_PYTHON:-python}"
