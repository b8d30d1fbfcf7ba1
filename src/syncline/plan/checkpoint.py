"""The sizes of the tensors in a checkpoint. Only headers are read; nothing is unpickled, and no values are loaded.

1. A safetensors file begins with the length of a JSON header (8 bytes, little endian), which has names, types, shapes.
2. A file of `torch.save` is a zip archive. Its pickle names a storage for each tensor: ('storage', type, key, device,
   number of values). `pickletools` lists the operations of a pickle without performing them.
3. Only floating point values count: others are counters, and are not trained.
"""

from __future__ import annotations

import json
import pickletools
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile, ZipFile, is_zipfile

from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.plan.model import OPTION, checked_layout

SAFETENSORS = (".safetensors",)
TORCH = (".pt", ".pth", ".bin", ".ckpt")

MOST_HEADER = 100 << 20
"""The largest header, in bytes, as in the safetensors library."""

_FLOATING = ("F", "BF")
_STORAGES = ("FloatStorage", "HalfStorage", "BFloat16Storage", "DoubleStorage")


def read_checkpoint(path: Path) -> Layout:
    """The tables of a checkpoint, in the order of the file; `UsageError` if it cannot be read."""
    try:
        tables = list(_safetensors(path) if path.suffix in SAFETENSORS else _torch(path))
    except OSError as error:
        raise UsageError(OPTION, f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BadZipFile):
        kind = "safetensors file" if path.suffix in SAFETENSORS else "file of torch.save"
        raise UsageError(OPTION, f"{str(path)!r} is not a {kind}, or it is damaged") from None
    if not tables:
        raise UsageError(OPTION, f"{str(path)!r} has no tensors of floating point values")
    return checked_layout(tables)


def _safetensors(path: Path) -> Iterator[tuple[str, list[int]]]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= MOST_HEADER:
            raise ValueError("the length of the header is wrong")
        text = file.read(length)
    if len(text) < length:
        raise ValueError("the header is cut off")
    found = {name: about for name, about in json.loads(text).items() if name != "__metadata__"}
    for name, about in sorted(found.items(), key=lambda each: int(each[1]["data_offsets"][0])):
        if str(about["dtype"]).startswith(_FLOATING):
            shape = [int(each) for each in about["shape"]]
            if min(shape, default=0) < 0:
                raise ValueError("a shape is negative")
            yield name, shape


def _torch(path: Path) -> Iterator[tuple[str, list[int]]]:
    if path.is_file() and not is_zipfile(path):
        raise ValueError("not a zip archive")
    with ZipFile(path) as archive:
        pickles = [each for each in archive.infolist() if each.filename.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1 or pickles[0].file_size > MOST_HEADER:
            raise ValueError("there is no pickle, or a too large one")
        seen: set[str] = set()
        for kind, key, values in _storages(archive.read(pickles[0])):
            if key not in seen and kind.endswith(_STORAGES):
                seen.add(key)
                yield f"storage {key}", [values]


def _storages(data: bytes) -> Iterator[tuple[str, str, int]]:
    """(type, key, number of values) of each storage that a pickle names; operations are listed, not performed."""
    pushed: list[object] = []
    memo: dict[object, object] = {}
    for code, argument, _ in pickletools.genops(data):
        match code.name:
            case "BINUNICODE" | "SHORT_BINUNICODE" | "UNICODE" | "GLOBAL":
                pushed.append(argument)
            case "BININT" | "BININT1" | "BININT2" | "INT" | "LONG" | "LONG1" | "LONG4":
                pushed.append(argument)
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                memo[argument] = pushed[-1] if pushed else None
            case "MEMOIZE":
                memo[len(memo)] = pushed[-1] if pushed else None
            case "BINGET" | "LONG_BINGET" | "GET":
                pushed.append(memo.get(argument))
            case "TUPLE":
                pass  # it follows the five values that name a storage
            case "BINPERSID":
                match pushed[-5:]:
                    case ["storage", str(kind), str(key), str(), int(values)]:
                        yield kind, key, values
                pushed.append(None)
            case _:
                pushed.append(None)
