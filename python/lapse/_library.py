"""Loads the operators' library and with it torch.ops.lapse.*. Import this before using them."""

import os
import pathlib
import warnings

import torch

from lapse import _fake

FOLDER = pathlib.Path(__file__).resolve().parent


def library_path() -> pathlib.Path:
    """The library beside this file, or the one that the environment's LAPSE_OPS names (for work on the operators)."""
    return pathlib.Path(os.environ.get("LAPSE_OPS") or FOLDER / "liblapse_ops.so")


def check_torch() -> None:
    """ImportError unless this torch is of the minor version that the library was compiled for: others have another ABI."""
    try:
        from lapse._built_for import TORCH
    except ImportError:  # not installed: LAPSE_OPS says what fits
        return
    found = ".".join(torch.__version__.split(".")[:2])
    if found != TORCH and not os.environ.get("LAPSE_OPS"):
        raise ImportError(
            f"lapse was built for torch {TORCH}, and this is torch {torch.__version__}: pip install 'torch=={TORCH}.*', or "
            "build lapse again: pip install --no-cache-dir --force-reinstall --no-deps ."
        )


def check_transformers() -> None:
    """ImportError unless there is a transformers whose caches lapse.hf can be."""
    try:
        from transformers import __version__ as found
    except ImportError as error:
        raise ImportError("lapse.hf needs transformers 5.20 or later: pip install 'transformers>=5.20'") from error
    if tuple(int(part) for part in found.split(".")[:2]) < (5, 20):
        raise ImportError(f"lapse.hf needs transformers 5.20 or later, and this is {found}: pip install -U transformers")


def load_gpu_kernels() -> None:
    """Of the library of a checkout in which they were built: those of libtorch's CUDA key. Without them attention on a GPU
    runs its reference, which a warning says."""
    folder = library_path().parent
    library = folder / "liblapse_cuda.so"
    missing = [file.name for file in (library, folder / "lapse_kernels.bin") if not file.is_file()]
    if not missing:
        torch.ops.load_library(str(library))
        return
    warnings.warn(
        f"lapse: attention on a GPU will be slow, by the reference: there is no {' and no '.join(missing)} in {folder}. In a "
        "checkout `scripts/build.sh release lapse_cuda cuda_kernels` makes both; let LAPSE_OPS name the liblapse_ops.so beside them",
        stacklevel=2,
    )


def load() -> None:
    """Registers torch.ops.lapse.*; once per process, whoever loaded it."""
    if not hasattr(torch.ops.lapse, "ramp_attention"):
        check_torch()
        path = library_path()
        if not path.is_file():
            raise ImportError(
                f"lapse: no library {path}: install the package (pip install .), or let LAPSE_OPS name liblapse_ops.so"
            )
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            raise ImportError(f"lapse: {path} is not the operators' library, or not for this torch: {error}") from None
    if torch.cuda.is_available():
        load_gpu_kernels()
        _fake.register()


load()
