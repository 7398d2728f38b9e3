"""Triton's kernels on the CPU, interpreted: imported before anything that imports Triton. What is not initialised is NaN, so that
what no kernel writes shows."""

import os
import pathlib
import sys
import types

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch  # noqa: E402
import triton.language as tl  # noqa: E402
import triton.runtime.interpreter as interpreter  # noqa: E402

torch.use_deterministic_algorithms(True, warn_only=True)  # it fills torch.empty

_patch = interpreter._patch_lang_tensor


def _patched(tensor, scope):
    """Scalars are arrays of one element there, which numpy 2.4 no longer turns into a number by itself."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patched

_dot = interpreter.InterpreterBuilder.create_dot


def _dot_of_numbers(self, a, b, *rest):
    """bfloat16 is kept as the integers of its bits, which are no factors."""
    if a.dtype.name == "bf16":
        a, b = (self.cast_impl(x, tl.float32) for x in (a, b))
    return _dot(self, a, b, *rest)


interpreter.InterpreterBuilder.create_dot = _dot_of_numbers

# Two shortcuts: the tests take half the time.
# Patched once, for the process: Triton patches all of its language at every call of a device function.
interpreter._patch_lang(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
interpreter._patch_lang = lambda function: interpreter._LangPatchScope()

_np_dtype = interpreter._get_np_dtype
_np_dtypes = {}


def _remembered_np_dtype(dtype):
    """It makes a table of all types at every call."""
    name = dtype.scalar.name
    if name not in _np_dtypes:
        _np_dtypes[name] = _np_dtype(dtype)
    return _np_dtypes[name]


interpreter._get_np_dtype = _remembered_np_dtype
