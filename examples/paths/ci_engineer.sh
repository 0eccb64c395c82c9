#!/bin/sh
# An engineer of CI: a report that the CI shows, an exit code that stops it, and what changed since the last run.
# Run it in an empty environment: python -m venv env && . env/bin/activate && sh ci_engineer.sh
set -e
paths=$(cd "$(dirname "$0")" && pwd)
pip install --quiet "$paths/../.."
gates check "$paths/numpy_advantages.py" --require numpy_advantages --out before --format junit > gates.xml
gates check "$paths/numpy_advantages.py" --require numpy_advantages --out after --baseline before/*.jsonl
