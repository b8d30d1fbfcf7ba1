"""The network interfaces of this host and their addresses, as the kernel lists them."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple

_LIST, _FLAGS = 0x8912, 0x8913
"""Linux ioctls: SIOCGIFCONF and SIOCGIFFLAGS."""

_ENTRY = 40
"""The bytes of one entry of that list (struct ifreq) on 64-bit systems."""

_UP, _RUNNING = 0x1, 0x40

_INSIDE = re.compile(r"(docker|br-|virbr|lxcbr|lxdbr|cni|podman|flannel|cali|vboxnet|vmnet)")
"""The beginning of names that container and virtual-machine systems give to networks inside of one host."""

_LINK_LOCAL = "fe80"


class Interface(NamedTuple):
    """An address of this host, and the interface that has it."""

    name: str
    address: str
    runs: bool
    """It is switched on and has a carrier."""

    @property
    def is_inside(self) -> bool:
        """Whether this is a network between containers or virtual machines of this host, to judge by its name."""
        return _INSIDE.match(self.name) is not None

    def __str__(self) -> str:
        return f"{self.address} on {self.name}"


def interfaces() -> list[Interface]:
    """All addresses of this host but loopback and link-local ones."""
    found = [*_internet(), *_internet6()]
    return [each for each in found if not each.address.startswith("127.") and each.address != "::1"]


def _internet() -> list[Interface]:
    buffer = array.array("B", bytes(_ENTRY * 512))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        where, room = buffer.buffer_info()
        size, _ = struct.unpack("iL", fcntl.ioctl(probe, _LIST, struct.pack("iL", room, where)))
        found = []
        for start in range(0, size, _ENTRY):
            entry = buffer[start : start + _ENTRY].tobytes()
            label = entry[:16].partition(b"\0")[0].decode()
            found.append(Interface(label.partition(":")[0], socket.inet_ntoa(entry[20:24]), _runs(probe, label)))
    return found


def _internet6(table: Path = Path("/proc/net/if_inet6")) -> list[Interface]:
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return []  # a kernel without IPv6
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for line in lines:
            raw, *_, name = line.split()
            if not raw.startswith(_LINK_LOCAL):
                found.append(Interface(name, str(IPv6Address(int(raw, 16))), _runs(probe, name)))
    return found


def _runs(probe: socket.socket, name: str) -> bool:
    try:
        raw = fcntl.ioctl(probe, _FLAGS, struct.pack("16sh22x", name.encode(), 0))
    except OSError:
        return False  # it was removed meanwhile
    flags = int(struct.unpack_from("h", raw, 16)[0])
    return bool(flags & _UP) and _has_carrier(name, otherwise=bool(flags & _RUNNING))


def _has_carrier(name: str, *, otherwise: bool) -> bool:
    """Whether the interface has a carrier; the flags say so only some time after it was switched on."""
    try:
        return Path(f"/sys/class/net/{name.partition(':')[0]}/carrier").read_text().strip() == "1"
    except OSError:
        return otherwise
