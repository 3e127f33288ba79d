"""Input checks: one clear line that names the argument, what came and what was expected."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from otformer.errors import ArgumentError as ArgumentError  # checks.ArgumentError, for all that import checks
from otformer.errors import ConflictError as ConflictError
from otformer.files import check_ending
from otformer.memory import lacking

LOW = torch.float16, torch.bfloat16  # read as float32, which holds every number of theirs
NUMBERS = int, float, np.floating, np.integer  # of Python or numpy, True and False among them
MASKED = "MaskedTensor"  # the class of torch.masked, told by its name so that nothing is imported
LEAST_POSITIVE = 1e-300  # a setting that is to be positive and is not larger counts as 0
FLOATS = "float16, bfloat16, float32 or float64, or whole numbers"


def positive(name: str, value: Any) -> float:
    """A finite number above zero, as float."""
    number = _number(name, value, "a positive number")
    if not (math.isfinite(number) and number > LEAST_POSITIVE):
        tiny = 0 < number <= LEAST_POSITIVE
        raise ArgumentError(name, f"be above {LEAST_POSITIVE:g}" if tiny else "be a positive, finite number", repr(value))
    return number


def not_negative(name: str, value: Any) -> float:
    """A finite number that is zero or above, as float."""
    number = _number(name, value, "a number")
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(name, "be zero or a positive, finite number", repr(value))
    return number


def seconds(name: str, value: Any) -> float | None:
    """A positive number of seconds; None, or inf, for no limit."""
    return None if value is None or (isinstance(value, float) and value == math.inf) else positive(name, value)


def count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least ``least``, and at most ``most`` where there is a bound."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(name, f"be a whole number of at least {least}", repr(value))
    if most is not None and value > most:
        raise ArgumentError(name, f"be a whole number of at most {most}", repr(value))
    return int(value)


def _number(name: str, value: Any, expected: str) -> float:
    if isinstance(value, (bool, str)):
        raise ArgumentError(name, f"be {expected}", repr(value))
    if isinstance(value, Tensor):
        no_transforms(name, value)
        if derivative_wanted(value):
            raise ArgumentError(name, "not require a gradient here", advice=f"it would be lost; use {name}.item()")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(name, f"be {expected}", _describe(value)) from None
    except OverflowError:
        raise ArgumentError(name, f"be {expected}", "a whole number beyond float64") from None


def has_tangent(value: Any) -> bool:
    """Whether a tensor carries a forward-mode derivative (torch.autograd.forward_ad)."""
    return isinstance(value, Tensor) and unpack_dual(value).tangent is not None


def derivative_wanted(*given: Any) -> bool:
    """Whether one of them is a tensor in which a derivative is wanted, in reverse or in forward mode."""
    learning = torch.is_grad_enabled()
    return any(isinstance(t, Tensor) and ((learning and t.requires_grad) or has_tangent(t)) for t in given)


def no_tangents(instead: str, **given: Any) -> None:
    """Raise ArgumentError if an argument carries a forward-mode derivative."""
    for name, value in given.items():
        if has_tangent(value):
            raise ArgumentError(name, "not carry a forward-mode derivative here", advice=instead)


def is_transformed(value: Tensor) -> bool:
    """Whether a tensor is inside a transform of torch.func, where every tensor becomes one without numbers of its own."""
    functorch = torch._C._functorch
    return functorch.is_functorch_wrapped_tensor(value) or functorch.peek_interpreter_stack() is not None


def no_transforms(name: str, value: Tensor) -> None:
    """Raise ArgumentError for a tensor inside a transform of torch.func, whose numbers cannot be read."""
    if is_transformed(value):
        instead = "use torch.autograd.grad, and solve_batch for many problems"
        raise ArgumentError(name, "not be inside torch.func (grad, vmap, jacrev, jvp)", advice=instead)


def array(name: str, value: Any, differentiable: bool = False) -> Any:
    """Convert anything array-like to float32 or float64; values are not checked.

    Whole numbers become float64, float16 and bfloat16 float32.

    What is in memory comes back as a numpy array (of a tensor without its graph, and without a copy), what is on another
    device as a tensor. ``differentiable``: the caller sees to derivatives; otherwise a forward-mode one is refused.
    """
    if type(value) is np.ndarray and value.dtype.char in "df" and value.dtype.isnative and min(value.strides or (0,)) >= 0:
        return value
    if isinstance(value, Tensor):
        if not differentiable:
            no_tangents("use torch.autograd.grad", **{name: value})
        t = _float_tensor(name, value).detach()
        return t.numpy() if t.device.type == "cpu" else t
    given = plain(name, value, "an array of numbers")
    kind = given.dtype.kind
    if kind not in "fiubc":
        raise ArgumentError(name, "be an array of numbers", _describe(value))
    if kind in "iu" or given.dtype.newbyteorder("=") == np.float16:
        return given.astype(np.float64 if kind in "iu" else np.float32)
    if given.dtype.newbyteorder("=") not in (np.float64, np.float32):
        raise ArgumentError(name, f"be {FLOATS}", f"dtype {given.dtype}")
    return np.array(given, given.dtype.newbyteorder("="), order="C")


def plain(name: str, value: Any, expected: str) -> np.ndarray:
    """numpy.asarray of what loses nothing by it: neither a mask, nor units, nor the derivative of a tensor in a list."""
    if lost := _lost(value):
        raise ArgumentError(name, f"be {expected}", lost)
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        if lacking(error):  # where an array is only now made
            raise
        raise ArgumentError(name, f"be {expected}", _describe(value)) from None


def _lost(value: Any) -> str:
    """What numpy.asarray would drop in silence, in words; empty if nothing."""
    if isinstance(value, (list, tuple)):
        return next((lost for item in value if type(item) not in (float, int) and (lost := _lost(item))), "")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return "a masked array with entries that are masked"
    if isinstance(value, Tensor) and (derivative_wanted(value) or is_transformed(value)):
        return "a list of tensors with derivatives: use torch.stack"
    has_units = hasattr(type(value), "units") or hasattr(type(value), "unit")
    return f"{type(value).__name__} with units: give its numbers" if has_units else ""


def as_low(out: Any, given: Any) -> Any:
    """An array in the dtype of what was given where that is float16 or bfloat16; otherwise as it is.

    >>> as_low(torch.ones(2), torch.ones(2, dtype=torch.float16)).dtype
    torch.float16
    """
    dtype = getattr(given, "dtype", None)
    if isinstance(out, Tensor):
        return out.to(dtype) if dtype in LOW else out
    return out.astype(np.float16) if isinstance(given, np.ndarray) and dtype == np.float16 else out


def unseen(name: str, value: Any) -> Tensor:
    """Convert anything array-like to a tensor, in float32 or float64 as in `array`; values are not checked."""
    if isinstance(value, Tensor):
        return _float_tensor(name, value)
    given = array(name, value)
    fit = given.flags.c_contiguous and given.flags.writeable  # torch warns about read-only memory
    return torch.from_numpy(given if fit else np.array(given, order="C"))


def local(value: Any) -> Tensor:
    """A tensor as it is; numbers and arrays as one in memory: `torch.as_tensor` would take both to torch's default device.

    >>> local(0.5).dtype
    torch.float64
    """
    return value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value), device="cpu")


def tensor(name: str, value: Any) -> Tensor:
    """Anything array-like as a tensor of finite numbers, in float32 or float64 as in `array`."""
    t = unseen(name, value)
    if t.numel() and not all(math.isfinite(end) for end in torch.stack(torch.aminmax(t.detach())).tolist()):
        raise ArgumentError(name, "be finite", first_not_finite(t))
    return t


def is_plain(t: Tensor) -> bool:
    """Whether a tensor is all its numbers, one after the other."""
    return type(t).__name__ != MASKED and not t.is_nested and t.layout == torch.strided and t.device.type != "meta"


def _float_tensor(name: str, t: Tensor) -> Tensor:
    no_transforms(name, t)
    if not is_plain(t):
        laid_out = f"tensor of layout {t.layout} on {t.device}"
        kind = "masked tensor" if type(t).__name__ == MASKED else "nested tensor" if t.is_nested else laid_out
        raise ArgumentError(name, "be an ordinary array", f"a {kind}")
    if t.dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        return t.to(torch.float64)
    if t.dtype in LOW:
        return t.float()
    if t.dtype not in (torch.float32, torch.float64):
        raise ArgumentError(name, f"be {FLOATS}", f"dtype {str(t.dtype).removeprefix('torch.')}")
    return t


def points(name: str, value: Any, dim: int | None = None, batch: bool = False) -> Tensor:
    """Points as rows: shape (n, d), or (batch, n, d) where ``batch`` allows it."""
    t = tensor(name, value)
    allowed = (2, 3) if batch else (2,)
    if t.ndim not in allowed:
        shapes = "(n, d) or (batch, n, d)" if batch else "(n, d)"
        raise ArgumentError(name, f"have shape {shapes}", tuple(t.shape), column_hint(name, t))
    if dim is not None and t.shape[-1] != dim:
        raise ArgumentError(name, f"have {dim} coordinates per point", f"shape {tuple(t.shape)}")
    return t


def column_hint(name: str, t: Any) -> str:
    """What to do with a vector where points are expected; empty for any other array."""
    return f"{name}[:, None] has a point in every row" if t.ndim == 1 else ""


def choice(name: str, value: Any, known: Any) -> Any:
    """One of the known names."""
    if not isinstance(value, Hashable) or value not in known:
        near = get_close_matches(value, [*map(str, known)], 1, cutoff=0.7) if isinstance(value, str) else []
        hint = f"did you mean {near[0]}?" if near else ""
        raise ArgumentError(name, f"be one of {', '.join(map(str, known))}", repr(value), hint)
    return value


def _describe(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return _describe_list(value)
    dtype = None if hasattr(value, "tocoo") else getattr(value, "dtype", None)  # a sparse matrix is named by its type
    return f"an array of dtype {dtype}" if dtype is not None else f"{type(value).__name__}"


def _describe_list(value: list[Any] | tuple[Any, ...]) -> str:
    """What keeps a list from being an array: rows of different length, or its first entry that is not a number."""
    lengths = [len(row) for row in value if isinstance(row, (list, tuple))]
    if len(set(lengths)) > 1:
        return f"rows of different length, {lengths[0]} and {next(k for k in lengths if k != lengths[0])}"
    entries = (entry for row in value for entry in (row if isinstance(row, (list, tuple)) else [row]))
    strange = next((entry for entry in entries if isinstance(entry, (str, bytes, dict)) or entry is None), value)
    return type(value).__name__ if strange is value else f"{strange!r} in a {type(value).__name__}"


def first_not_finite(values: Any) -> str:
    """The first non-finite entry and its index."""
    t = local(values)
    where = tuple((~torch.isfinite(t)).nonzero()[0].tolist())
    return f"{t[where].item()}" + (f" at index {where[0] if len(where) == 1 else where}" if where else "")


def path(name: str, value: Any, *endings: str) -> Path:
    """The name of a file, which must have one of the endings, if there are any.

    >>> path("path", "plan.html", ".html", ".htm").name
    'plan.html'
    """
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise ArgumentError(name, "be the name of a file", repr(value))
    if endings:
        check_ending(name, Path(value), *endings)
    return Path(value)


def device(value: str | torch.device) -> torch.device:
    """A device to compute on, cpu or cuda, that is here.

    >>> device("cpu")
    device(type='cpu')
    """
    try:
        place = torch.device(value)
    except (RuntimeError, TypeError):
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise ArgumentError("device", "be cpu or cuda", repr(value))
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        found = f"torch finds {torch.cuda.device_count()} CUDA devices"
        raise ArgumentError("device", "be cpu or an available CUDA device", place, found)
    return place


def vectors(name: str, t: Any, size: int) -> None:
    """Check one vector of ``size`` numbers, or k of them as columns."""
    if t.ndim not in (1, 2) or len(t) != size:
        raise ArgumentError(name, f"have shape ({size},) or ({size}, k)", tuple(t.shape))
