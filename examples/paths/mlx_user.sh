#!/bin/sh
# A user of MLX: is my GRPO loss, and its gradient by autograd, the paper's?
# Run it in an empty environment: python -m venv env && . env/bin/activate && sh mlx_user.sh
set -e
paths=$(cd "$(dirname "$0")" && pwd)
case $(uname) in Darwin) mlx=mlx ;; *) mlx='mlx[cpu]' ;; esac
pip install --quiet "$paths/../.." "$mlx"
gates check "$paths/mlx_loss.py"
