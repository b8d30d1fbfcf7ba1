"""The files of a checkpoint. Arrays and tensors are in safetensors files, everything else is JSON; nothing is pickled.

1. A file is whole or not there: it is written under another name, flushed to the disk and renamed.
2. `packed` takes arrays out of nested dicts, lists and tuples, and leaves their names in the JSON.
3. safetensors is an optional dependency, so it is imported when a file is written or read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from syncline.errors import SynclineError

_BLOCK = 1 << 22

_ARRAY, _PAIRS, _TUPLE = "$array", "$pairs", "$tuple"


class Unsaveable(SynclineError):
    """A value cannot be written to a checkpoint; the text names its type."""


class DamagedFile(SynclineError):
    """A file of a checkpoint cannot be read, and why."""


def packed(value: Any, arrays: dict[str, Any], path: str = "") -> Any:
    """The value for JSON; arrays and tensors go to `arrays` under their path. Raises `Unsaveable`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.bool | np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        while path in arrays:
            path += "'"
        arrays[path] = value
        return {_ARRAY: path}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: packed(each, arrays, f"{path}/{key}") for key, each in value.items()}
        pairs = [[packed(key, arrays, path), packed(each, arrays, f"{path}/{key}")] for key, each in value.items()]
        return {_PAIRS: pairs}
    if isinstance(value, list):
        return [packed(each, arrays, f"{path}/{place}") for place, each in enumerate(value)]
    if isinstance(value, tuple | set | frozenset):
        return {_TUPLE: [packed(each, arrays, f"{path}/{place}") for place, each in enumerate(value)]}
    raise Unsaveable(f"a value of type {type(value).__name__}")


def unpacked(value: Any, arrays: Mapping[str, Any]) -> Any:
    """The value that `packed` was given."""
    if isinstance(value, list):
        return [unpacked(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    if _PAIRS in value:
        return {_key(unpacked(key, arrays)): unpacked(each, arrays) for key, each in value[_PAIRS]}
    if _TUPLE in value:
        return tuple(unpacked(each, arrays) for each in value[_TUPLE])
    return {key: unpacked(each, arrays) for key, each in value.items()}


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


# Files.


def write_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write arrays, or tensors, as safetensors."""
    if any(hasattr(each, "detach") for each in arrays.values()):
        import torch
        from safetensors.torch import save_file

        tensors = {
            name: (torch.from_numpy(np.array(each)) if isinstance(each, np.ndarray) else each).contiguous()
            for name, each in arrays.items()
        }
        write_whole(path, lambda new: save_file(tensors, new, {**metadata, "format": "pt"}))
    else:
        from safetensors.numpy import save_file as save_numpy

        plain = {name: np.ascontiguousarray(each) for name, each in arrays.items()}
        write_whole(path, lambda new: save_numpy(plain, new, dict(metadata)))


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1)
    write_whole(path, lambda new: new.write_text(text))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, flush it to the disk, and rename it."""
    new = path.with_name(f".{path.name}.new")
    write(new)
    with new.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def mark_of(path: Path) -> tuple[int, int]:
    """The size of a file in bytes, and its CRC-32."""
    size = found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size, found = size + len(block), crc32(block, found)
    return size, found


def read_arrays(path: Path, torch: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays of a file, as tensors or for numpy, and its metadata; none without a file. Raises `DamagedFile`."""
    if not path.exists():
        return {}, {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt" if torch else "numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DamagedFile(f"{path}: {error}") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{path}: {getattr(error, 'strerror', None) or error}") from None
