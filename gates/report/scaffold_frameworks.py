"""The helper that `gates init --framework` adds to a subject file: it computes loss and gradient by autograd."""

from __future__ import annotations

from gates.config.format_names import InitFramework
from gates.model import Op

Framework = InitFramework
HELPERS: dict[str, str] = {
    "torch": '''

def loss_and_gradient(function: Any, variable: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call a loss with tensors; return its value, and autograd's gradient by the variable in the variable's dtype."""
    given = {name: _tensor(value) for name, value in inputs.items()}
    leaf = given.pop(variable).requires_grad_()
    loss = function(leaf, **given)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return {"loss": loss.item(), "gradient": gradient.numpy()}


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C"))  # a copy: nothing of ours changes
''',
    "mlx": '''

def loss_and_gradient(function: Any, variable: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call a loss with arrays; return its value, and autograd's gradient by the variable in the variable's dtype.

    MLX has float64 on the CPU only, and there its exp and log keep about the digits of float32: declare
    dtype=("float32",) unless your loss needs neither.
    """
    double = inputs[variable].dtype.itemsize == 8
    with mx.stream(mx.cpu if double else mx.default_device()):
        given = {name: _array(value) for name, value in inputs.items()}
        leaf = given.pop(variable)
        loss, gradient = mx.value_and_grad(lambda x: function(x, **given))(leaf)
        mx.eval(loss, gradient)
        return {"loss": loss.item(), "gradient": np.array(gradient)}


def _array(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    native = value.astype(value.dtype.newbyteorder("="), order="C")
    return mx.array(native, dtype=mx.float64) if native.dtype == np.float64 else mx.array(native)
''',
    "jax": '''

jax.config.update("jax_enable_x64", True)  # or float64 inputs become float32


def loss_and_gradient(function: Any, variable: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call a loss with arrays; return its value, and autograd's gradient by the variable in the variable's dtype."""
    given = {name: _array(value) for name, value in inputs.items()}
    leaf = given.pop(variable)
    loss, gradient = jax.value_and_grad(lambda x: function(x, **given))(leaf)
    return {"loss": float(loss), "gradient": np.asarray(gradient)}


def _array(value: Any) -> Any:
    return jnp.asarray(value.astype(value.dtype.newbyteorder("="))) if isinstance(value, np.ndarray) else value
''',
}
IMPORTS = {"torch": "import torch", "mlx": "import mlx.core as mx", "jax": "import jax\nimport jax.numpy as jnp"}
VERSIONS = {
    "torch": '"torch": torch.__version__',
    "mlx": '"mlx": mx.__version__',
    "jax": '"jax": jax.__version__',
}
ARRAYS = {"torch": "tensors", "mlx": "MLX arrays", "jax": "JAX arrays"}
FUNCTION = '''

def {op}_of_arrays({signature}):
{formula}

    The arrays are {arrays}. Write the forward alone and return the loss, a scalar: the gradient is autograd's.

{inputs}
    """
    raise NotImplementedError("{op} is not filled in yet")


@provides(
    "{op}",
{choices}
)
@functools.wraps({op}_of_arrays)  # its arguments: cases with one deleted there are `unsupported`
def {op}(**inputs):
    """Return the loss of `{op}_of_arrays`, and its gradient by `{variable}`."""
    return loss_and_gradient({op}_of_arrays, "{variable}", inputs)
'''


def differentiated(op: Op) -> str:
    """Return the input by which an op's `gradient` is the derivative of its `loss`, or nothing if it has other outputs."""
    return op.outputs["gradient"].like if set(op.outputs) == {"loss", "gradient"} else ""
