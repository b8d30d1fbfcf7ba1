"""The key of a run. A process that has it can connect to the run; for any other process the TLS handshake fails.

A key is a private key and its self-signed certificate, as PEM. Both sides of a connection present this certificate and
accept only this one, with TLS 1.3. Host names are not checked. A key comes from one of these:

- a key file: the launcher makes it, and the user copies it to the other hosts
- SYNCLINE_KEY: the text of a key file, or a secret of the user's, from which every host derives the same key
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Any

from syncline.errors import UsageError

OPTION = "--key-file"
"""The option that errors about the key file refer to."""

VARIABLE = "SYNCLINE_KEY"
"""The environment variable that holds a key or a secret."""

FILE_VARIABLE = "SYNCLINE_KEY_FILE"
"""The environment variable that names a key file."""

LEAST_SECRET = 16
"""The least number of characters of a secret: others can try out guesses."""

BEGIN = "-----BEGIN "
"""A text that begins with this is the content of a key file."""

SINCE, UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""The validity of a key that is derived from a secret: the same on every host, whatever its clock."""

OWNER_ONLY = 0o600
"""The mode of the key file: a user who can read it can join the run and read all traffic."""

SKEW = timedelta(days=1)
"""A key is valid from this long before it is made, so that a host with a slow clock can use it at once."""

LIFETIME = timedelta(days=365)
"""A key is valid for this long after it is made, which is longer than any run."""

WRONG_KEY = (
    f"the two sides have different keys: copy the launcher's key file to every host and name it with {OPTION}, or set "
    f"{VARIABLE} to the same secret everywhere"
)
NO_TLS = f"the peer does not speak TLS 1.3: start it with {OPTION}, or check that the address is right"
PEER_HAS_NO_KEY = f"the peer presented no key: start it with {OPTION}"
WE_HAVE_NO_KEY = f"the peer requires a key: start this side with {OPTION}"
EXPIRED = f"the key has expired ({LIFETIME.days} days after it was made): make a new key file, or correct the clock"
TOO_EARLY = "the key is not valid yet: the clock of one host is more than a day slow; correct it"
REFUSED = "the peer refused our key: give both sides the same key file, and check both clocks"
CLOSED = "the peer closed the connection: it refused our key, does not speak TLS, or has stopped"
TIMED_OUT = f"the peer did not answer in time: it is busy or gone, or was started without {OPTION}"
NOT_LISTENING = "no process listens there: check the address, and that the other side has started"

CERTIFICATE_NOT_YET_VALID = 9
CERTIFICATE_HAS_EXPIRED = 10
"""Two of OpenSSL's verify codes; any other code means that the certificate is not ours."""

REASONS = {
    "ALERT_UNKNOWN_CA": WRONG_KEY,
    "ALERT_DECRYPT_ERROR": WRONG_KEY,
    "ALERT_CERTIFICATE_EXPIRED": EXPIRED,
    "ALERT_BAD_CERTIFICATE": REFUSED,
    "ALERT_CERTIFICATE_UNKNOWN": REFUSED,
    "ALERT_CERTIFICATE_REQUIRED": WE_HAVE_NO_KEY,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": PEER_HAS_NO_KEY,
    "WRONG_VERSION_NUMBER": NO_TLS,
    "RECORD_LAYER_FAILURE": NO_TLS,
    "PACKET_LENGTH_TOO_LONG": NO_TLS,
    "UNEXPECTED_MESSAGE": NO_TLS,
    "HTTP_REQUEST": NO_TLS,
    "HTTPS_PROXY_REQUEST": NO_TLS,
    "UNSUPPORTED_PROTOCOL": NO_TLS,
    "ALERT_PROTOCOL_VERSION": NO_TLS,
}
"""The end of OpenSSL's name for a failure, and its meaning here. The beginning of the name depends on the version."""


def make_key_file(path: Path) -> None:
    """Write a new key to a new file, which only its owner can read from the moment it exists."""
    pem = fresh_key(datetime.now(UTC))
    try:
        # O_EXCL: never write to an existing file or through a link.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY)
    except FileExistsError:
        raise UsageError(OPTION, f"{path} exists already; use another file, or remove it if no run uses it") from None
    except OSError as error:
        raise UsageError(OPTION, f"cannot create {path}: {_reason(error)}") from error
    try:
        with open(descriptor, "wb") as file:
            file.write(pem)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise UsageError(OPTION, f"cannot write {path}: {_reason(error)}") from error


def fresh_key(now: datetime) -> bytes:
    """A new private key (EC P-256) and its certificate, as PEM, valid from `SKEW` before `now` to `LIFETIME` after."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    unsigned = _certificate(key.public_key(), x509.random_serial_number(), now - SKEW, now + LIFETIME)
    return _pem(key, unsigned.sign(key, hashes.SHA256()))


def key_from_secret(secret: str) -> bytes:
    """The key that every host derives from this secret, as PEM; to the bit, since signatures of Ed25519 are fixed."""
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    # A stranger who connects sees the certificate, and can try out guesses. Scrypt makes each guess expensive.
    derived = Scrypt(salt=b"syncline key", length=64, n=1 << 15, r=8, p=1).derive(secret.encode())
    key = ed25519.Ed25519PrivateKey.from_private_bytes(derived[:32])
    serial = int.from_bytes(derived[32:48]) >> 2 | 1  # below 2^127, and above 0
    return _pem(key, _certificate(key.public_key(), serial, SINCE, UNTIL).sign(key, None))


def key_from_variable(text: str) -> str:
    """The key that SYNCLINE_KEY stands for, as PEM."""
    if text.lstrip().startswith(BEGIN):
        return text
    if len(text) < LEAST_SECRET:
        raise UsageError(
            VARIABLE,
            f"has {len(text)} characters; use a random secret of at least {LEAST_SECRET}, for example from "
            "`openssl rand -hex 16`, or the content of a key file",
        )
    return key_from_secret(text).decode()


def _certificate(public: Any, serial: int, since: datetime, until: datetime) -> Any:
    """A certificate that is still to be signed."""
    from cryptography import x509

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"syncline {serial:x}")])
    return (
        x509.CertificateBuilder(name, name, public, serial, since, until)
        # Not a certificate authority: certificates that this key signs are not accepted.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _pem(key: Any, certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    private: bytes = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public: bytes = certificate.public_bytes(form.Encoding.PEM)
    return private + public


def server_context(key: Path | str) -> ssl.SSLContext:
    """The TLS context of the side that accepts; a peer without this key fails the handshake. `key`: a file, or PEM."""
    context = _context(key, ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # connections are never resumed, and a peer that only sends would not read the tickets
    return context


def client_context(key: Path | str) -> ssl.SSLContext:
    """The TLS context of the side that connects; in TLS 1.3 it learns only at its first read that it was refused."""
    return _context(key, ssl.PROTOCOL_TLS_CLIENT)


def explain(error: ssl.SSLError | OSError) -> str:
    """A sentence that says why a connection or handshake failed and what to do; for either side."""
    match error:
        case ssl.SSLCertVerificationError():
            codes = {CERTIFICATE_NOT_YET_VALID: TOO_EARLY, CERTIFICATE_HAS_EXPIRED: EXPIRED}
            return codes.get(error.verify_code, WRONG_KEY)
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ConnectionResetError() | BrokenPipeError():
            return CLOSED
        case ssl.SSLError():
            name = getattr(error, "reason", None) or ""  # errors that Python itself raises have no reason
            known = (meaning for end, meaning in REASONS.items() if name.endswith(end))
            return next(known, f"the TLS handshake failed: {name.lower().replace('_', ' ') or _reason(error)}")
        case TimeoutError():
            return TIMED_OUT
        case ConnectionRefusedError():
            return NOT_LISTENING
    return f"the connection failed: {_reason(error)}"


def _context(key: Path | str, protocol: int) -> ssl.SSLContext:
    if isinstance(key, Path):
        _check(key)
    elif key.count("-----BEGIN CERTIFICATE-----") != 1:
        raise _no_key(key)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # hosts are identified by the key, not by name
    context.verify_mode = ssl.CERT_REQUIRED
    with _as_file(key) as path:
        try:
            context.load_cert_chain(path, password="")  # an empty password, so that OpenSSL never prompts for one
            context.load_verify_locations(path)
        except OSError as error:
            raise _no_key(key) from error
    return context


@contextmanager
def _as_file(key: Path | str) -> Iterator[str]:
    """A path from which OpenSSL can read the key; a key that is no file is in memory only."""
    if isinstance(key, Path):
        yield str(key)
        return
    descriptor = os.memfd_create("syncline-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, key.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _check(path: Path) -> None:
    """Raise UsageError unless this is a file of ours with one certificate that other users cannot read or change."""
    try:
        found = path.stat()
        mode = found.st_mode
        if not S_ISREG(mode):
            raise UsageError(OPTION, f"{path} is not a file")
        if found.st_uid != os.geteuid():
            whose = f"{path} belongs to another user (user id {found.st_uid}), who can read and change it"
            raise UsageError(OPTION, f"{whose}; make a copy that belongs to you")
        if mode & 0o077:
            others = f"{path} is accessible to other users (mode {S_IMODE(mode):04o})"
            raise UsageError(OPTION, f"{others}; run: chmod 600 {path}")
        certificates = path.read_bytes().count(b"-----BEGIN CERTIFICATE-----")
    except FileNotFoundError:
        raise UsageError(OPTION, f"{path} does not exist; copy the launcher's key file to this host") from None
    except OSError as error:
        raise UsageError(OPTION, f"cannot read {path}: {_reason(error)}") from error
    if certificates != 1:
        raise _no_key(path)


def _no_key(key: Path | str) -> UsageError:
    if isinstance(key, str):
        return UsageError(VARIABLE, "does not hold the whole content of a key file; set it again")
    return UsageError(OPTION, f"{key} is not a key file made by the launcher; copy the launcher's key file again")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
