"""Checks of the key: that only its owner can read it, that it is a key, and that it is valid by this host's clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from syncline.engines.doctor.finding import Finding, note, ok, wrong
from syncline.engines.net import keys
from syncline.engines.net.wiring import key_of_user
from syncline.errors import UsageError

SOON = timedelta(days=7)
"""A key that expires within this time does not last for a long run."""


def key(file: Path | None, environment: Mapping[str, str]) -> Finding:
    """The key that a run with these options would use."""
    try:
        path, text = key_of_user(file, environment)
        if not path and not text:
            give = f"connections between hosts need one: --key-file FILE, or {keys.VARIABLE}"
            return note("key", "none was given", give)
        keys.client_context(Path(path) if path else text)
    except UsageError as error:
        problem, _, remedy = error.problem.partition("; ")
        return wrong("key", problem, remedy or "make a new key file")
    pem = Path(path).read_bytes() if path else text.encode()
    return judged(pem, path or keys.VARIABLE, datetime.now(UTC))


def judged(pem: bytes, name: str, now: datetime) -> Finding:
    """Whether a key, as PEM, is valid now and for a while."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < since:
        text = f"{name} is valid from {since:%Y-%m-%d %H:%M} UTC on, and this host's clock says {now:%Y-%m-%d %H:%M}"
        return wrong("key", text, "correct the clock")
    if now > until:
        return wrong("key", f"{name} has expired on {until:%Y-%m-%d}", "make a new key file, or correct the clock")
    if until - now < SOON:
        return note("key", f"{name} expires on {until:%Y-%m-%d}", "make a new key file before a long run")
    return ok("key", f"{name}, valid until {until:%Y-%m-%d}; nobody else can read it")
