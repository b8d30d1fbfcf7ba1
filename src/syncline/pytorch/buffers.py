"""The buffers of a model, such as running means: they are not trained, but they are part of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor, nn

from syncline.engines.worker.replica import Replica
from syncline.errors import PeerError, UsageError
from syncline.pytorch.slots import plain

if TYPE_CHECKING:
    from syncline.pytorch.session import Session


def copy_from_leader(session: Session, replica: Replica, model: nn.Module) -> None:
    """Copy the leader's buffers into this worker's model, so that all workers start with the same."""
    buffers = named(model)
    if not buffers or session.size == 1 or replica.leader < 0:
        return
    mine = _written(buffers) if replica.leader == session.rank else b""
    said = [each for each in session.share(f"the buffers of {replica.name}", mine) if each]
    if said and replica.leader != session.rank:
        _read(said[0], buffers)


def named(model: nn.Module) -> dict[str, Tensor]:
    return {plain(name): buffer for name, buffer in model.named_buffers()}


class _Packed(msgspec.Struct):
    """A buffer as bytes. Pickle is not used, because unpickling data from the network is unsafe."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def _written(buffers: dict[str, Tensor]) -> bytes:
    return msgspec.msgpack.encode({name: _pack(buffer) for name, buffer in buffers.items()})


def _pack(buffer: Tensor) -> _Packed:
    flat = buffer.detach().cpu().contiguous().reshape(-1)
    return _Packed(str(buffer.dtype), tuple(buffer.shape), flat.view(torch.uint8).numpy().tobytes())


def _read(data: bytes, buffers: dict[str, Tensor]) -> None:
    try:
        found = msgspec.msgpack.decode(data, type=dict[str, _Packed])
    except msgspec.DecodeError as error:
        raise PeerError(f"the leader's buffers cannot be decoded: {error}") from None
    for name, buffer in buffers.items():
        packed = found.get(name)
        size = buffer.numel() * buffer.element_size()
        if packed is None or (packed.dtype, packed.shape) != (str(buffer.dtype), tuple(buffer.shape)):
            raise UsageError(
                "model",
                f"buffer {name!r} differs in type or shape from the leader's, or the leader has no such buffer; "
                "build the same model on every worker",
            )
        if len(packed.data) != size:
            raise PeerError(f"the leader's buffer {name!r} has {len(packed.data):,} bytes instead of {size:,}")
        if size:
            with torch.no_grad():
                values = torch.frombuffer(bytearray(packed.data), dtype=buffer.dtype).reshape(buffer.shape)
                buffer.copy_(values)
