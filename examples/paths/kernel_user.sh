#!/bin/sh
# A user of the kernels: install them (a Rust toolchain builds them), call them, have them judged.
# Run it in an empty environment: python -m venv env && . env/bin/activate && sh kernel_user.sh
set -e
paths=$(cd "$(dirname "$0")" && pwd)
pip install --quiet "$paths/../.." "$paths/../../rust/rlkernels-python"
python "$paths/kernels.py"
gates check advantages --subject rlkernels --quick
