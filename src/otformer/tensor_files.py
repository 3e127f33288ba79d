"""Named tensors with a description in one safetensors file: written whole or not at all, read with clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otformer.errors import ArgumentError
from otformer.files import written

if TYPE_CHECKING:
    from torch import Tensor, nn


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write a file, whose name is ours (`files.written`); what ``about`` holds besides texts is stored as JSON.

    The same tensors and texts give the same bytes.
    """
    from safetensors.torch import save

    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
    with written(path, ours=True) as stream:
        stream.writelines(_in_order(save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, texts)))


def _in_order(data: bytes) -> tuple[bytes, memoryview]:
    """A safetensors file, its texts by name: safetensors itself writes them in another order every time.

    The file is the header's length in 8 bytes, the header, JSON padded to a multiple of 8, and the numbers; where these are
    is counted from the header's end.
    """
    numbers = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:numbers])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, memoryview(data)[numbers:]


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and description of a file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"{path} {'is not an ordinary file' if path.exists() else 'does not exist'}")
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError):
        raise ValueError(f"{path} is not a readable safetensors file") from None


def check_shapes(wanted: dict[str, tuple[int, ...]], tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse a file whose names or shapes are not those wanted, naming the first that is not."""
    for name in sorted(wanted.keys() | tensors.keys()):
        if name not in tensors:
            raise ValueError(f"{path} does not fit: {name} is missing")
        if name not in wanted:
            raise ValueError(f"{path} does not fit: {name} is not of this model")
        if wanted[name] != (found := tuple(tensors[name].shape)):
            raise ArgumentError(f"{name} of {path}", f"have shape {wanted[name]}", found)


def load_weights(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Fill a module from the tensors of a file, which must have its names and shapes."""
    check_shapes({name: tuple(t.shape) for name, t in module.state_dict().items()}, tensors, path)
    module.load_state_dict(tensors)
