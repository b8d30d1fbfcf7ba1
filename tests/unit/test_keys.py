"""Key files, and real handshakes between sides that have the same one, another one, or none."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from syncline.engines.net import keys
from syncline.engines.net.keys import client_context, explain, key_from_variable, make_key_file, server_context
from syncline.engines.net.wiring import key_of_user
from syncline.errors import UsageError

SECONDS = 10
BEGIN = b"-----BEGIN CERTIFICATE-----"

Outcome = bytes | OSError
"""What a side heard from the other, or why it did not."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key_file(tmp_path / "key.pem")
    return tmp_path / "key.pem"


@pytest.fixture
def other_key(tmp_path: Path) -> Path:
    make_key_file(tmp_path / "other.pem")
    return tmp_path / "other.pem"


def write_key(path: Path, pem: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(pem)
    return path


def greet(connection: socket.socket, wrap: Callable[[socket.socket], socket.socket], word: bytes) -> Outcome:
    """Shake hands, say a word, hear one: only what is heard shows a client of TLS 1.3 that it was accepted."""
    connection.settimeout(SECONDS)
    with connection:
        try:
            with wrap(connection) as secure:
                secure.sendall(word)
                return secure.recv(100)
        except OSError as error:
            return error


def meet(server: ssl.SSLContext, client: ssl.SSLContext | None) -> tuple[Outcome, Outcome]:
    """What the server and the client got from each other; without a context the client speaks plainly."""

    def accept(connection: socket.socket) -> socket.socket:
        return server.wrap_socket(connection, server_side=True)

    def call(connection: socket.socket) -> socket.socket:
        return client.wrap_socket(connection) if client else connection

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        calling = socket.create_connection(listener.getsockname())
        heard = threads.submit(greet, calling, call, b"from the client")
        return greet(listener.accept()[0], accept, b"from the server"), heard.result(SECONDS)


def sentence(outcome: Outcome) -> str:
    assert isinstance(outcome, OSError), outcome
    return explain(outcome)


# The file -------------------------------------------------------------------------------------------------------------


def test_a_key_file_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_key_file(tmp_path / "key.pem")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600


def test_what_exists_is_not_overwritten(key: Path, tmp_path: Path) -> None:
    content = key.read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (key, tmp_path / "link"):
        with pytest.raises(UsageError, match=r"--key-file: .* exists already"):
            make_key_file(path)
    assert key.read_bytes() == content
    assert not (tmp_path / "elsewhere").exists()


def test_a_key_file_needs_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--key-file: cannot create .*: No such file or directory"):
        make_key_file(tmp_path / "missing" / "key.pem")


def test_a_file_that_cannot_be_written_whole_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    real = os.open

    def open_full(path: Path, *how: int) -> int:
        os.close(real(path, *how))
        return full

    monkeypatch.setattr(os, "open", open_full)
    with pytest.raises(UsageError, match=r"cannot write .*: No space left"):
        make_key_file(tmp_path / "key.pem")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_file_that_is_open_to_others_is_refused(key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(UsageError, match=f"--key-file: .* is accessible to other users .*; run: chmod 600 {key}"):
        server_context(key)


def test_a_read_only_file_will_do(key: Path) -> None:
    key.chmod(0o400)
    server_context(key)


def test_a_path_that_is_missing_or_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--key-file: .* does not exist"):
        client_context(tmp_path / "missing")
    with pytest.raises(UsageError, match="is not a file"):
        client_context(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageError, match="is not a file"):
        client_context(tmp_path / "pipe")


def test_a_file_that_cannot_be_read_is_refused(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match=r"cannot read .*: Permission denied"):
        client_context(key)


def halves(pem: bytes) -> tuple[bytes, bytes]:
    private, begin, certificate = pem.partition(BEGIN)
    return private, begin + certificate


def spoilt(how: str) -> bytes:
    """A key file that something is wrong with."""
    now = datetime.now(UTC)
    private, certificate = halves(keys.fresh_key(now))
    _, foreign = halves(keys.fresh_key(now))
    locked = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    return {
        "empty": b"",
        "text": b"not a key\n",
        "no key": certificate,
        "no certificate": private,
        "another's certificate": private + foreign,
        "two certificates": private + certificate + foreign,
        "cut off": (private + certificate)[:-80],
        "locked": locked + certificate,
        "binary": b"\x00\xff" * 100,
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "text",
        "no key",
        "no certificate",
        "another's certificate",
        "two certificates",
        "cut off",
        "locked",
        "binary",
    ],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, how: str) -> None:
    path = write_key(tmp_path / "key.pem", spoilt(how))
    for context in (server_context, client_context):
        with pytest.raises(UsageError, match=r"--key-file: .* is not a key file"):
            context(path)


def test_a_locked_key_is_refused_without_a_question(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form

    private, certificate = halves(keys.fresh_key(datetime.now(UTC)))
    key = form.load_pem_private_key(private, password=None)
    lock = form.BestAvailableEncryption(b"secret")
    locked = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, lock)
    with pytest.raises(UsageError, match="is not a key file"):
        server_context(write_key(tmp_path / "key.pem", locked + certificate))


# The handshake --------------------------------------------------------------------------------------------------------


def test_the_same_key_on_both_sides_is_accepted(key: Path) -> None:
    assert meet(server_context(key), client_context(key)) == (b"from the client", b"from the server")


def test_it_is_tls_1_3_and_the_peer_is_always_asked(key: Path) -> None:
    for context in (server_context(key), client_context(key)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert not context.check_hostname


def test_another_key_is_refused_on_both_sides(key: Path, other_key: Path) -> None:
    server, client = meet(server_context(key), client_context(other_key))
    assert isinstance(client, ssl.SSLCertVerificationError)
    assert sentence(client) == keys.WRONG_KEY
    assert sentence(server) == keys.WRONG_KEY


def trusting(context: ssl.SSLContext) -> ssl.SSLContext:
    """A side that accepts anybody."""
    context.verify_mode = ssl.CERT_NONE
    return context


def test_a_client_with_another_key_that_trusts_anybody_is_refused(key: Path, other_key: Path) -> None:
    server, client = meet(server_context(key), trusting(client_context(other_key)))
    assert sentence(server) == keys.WRONG_KEY
    assert sentence(client) in (keys.WRONG_KEY, keys.CLOSED)


def test_a_server_with_another_key_that_trusts_anybody_is_refused(key: Path, other_key: Path) -> None:
    server, client = meet(trusting(server_context(other_key)), client_context(key))
    assert sentence(client) == keys.WRONG_KEY
    assert sentence(server) == keys.WRONG_KEY


def anonymous() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return trusting(context)


def test_a_client_that_shows_no_key_is_refused(key: Path) -> None:
    server, client = meet(server_context(key), anonymous())
    assert sentence(server) == keys.PEER_HAS_NO_KEY
    assert sentence(client) in (keys.WE_HAVE_NO_KEY, keys.CLOSED)


def test_an_older_tls_is_refused(key: Path) -> None:
    older = anonymous()
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    server, client = meet(server_context(key), older)
    assert sentence(server) == sentence(client) == keys.NO_TLS


def test_a_client_that_speaks_plainly_is_refused(key: Path) -> None:
    server, client = meet(server_context(key), None)
    assert sentence(server) == keys.NO_TLS
    assert client != b"from the server"


@pytest.mark.parametrize("answer", [b"HTTP/1.0 400 Bad Request\r\n\r\n", bytes(64), b"\xff" * 64])
def test_a_server_that_speaks_plainly_is_refused(key: Path, answer: bytes) -> None:
    here, there = socket.socketpair()
    there.sendall(answer)
    with here, there, pytest.raises(ssl.SSLError) as caught:
        client_context(key).wrap_socket(here)
    assert explain(caught.value) == keys.NO_TLS


def test_a_server_that_hangs_up_is_explained(key: Path) -> None:
    here, there = socket.socketpair()
    there.shutdown(socket.SHUT_WR)
    with here, there, pytest.raises(ssl.SSLError) as caught:
        client_context(key).wrap_socket(here)
    assert explain(caught.value) == keys.CLOSED


def certificate_of(child: Path, parent: Path) -> bytes:
    """The key of `child` with a certificate that the key of `parent` signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    above, old = (x509.load_pem_x509_certificate(halves(path.read_bytes())[1]) for path in (parent, child))
    signer = form.load_pem_private_key(halves(parent.read_bytes())[0], password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    times = (old.not_valid_before_utc, old.not_valid_after_utc)
    builder = x509.CertificateBuilder(above.subject, old.subject, old.public_key(), old.serial_number, *times)
    return halves(child.read_bytes())[0] + builder.sign(signer, hashes.SHA256()).public_bytes(form.Encoding.PEM)


def test_a_certificate_that_the_key_signed_is_not_the_key(key: Path, other_key: Path, tmp_path: Path) -> None:
    signed = write_key(tmp_path / "signed.pem", certificate_of(other_key, key))
    server, _ = meet(server_context(key), trusting(client_context(signed)))
    assert sentence(server) == keys.WRONG_KEY


# Clocks ---------------------------------------------------------------------------------------------------------------


def made(path: Path, ago: timedelta) -> Path:
    return write_key(path, keys.fresh_key(datetime.now(UTC) - ago))


@pytest.mark.parametrize("ago", [timedelta(hours=-23), timedelta(days=364)], ids=["slow clock", "almost a year"])
def test_a_key_lasts_from_a_day_before_for_a_year(tmp_path: Path, ago: timedelta) -> None:
    key = made(tmp_path / "key.pem", ago)
    assert meet(server_context(key), client_context(key)) == (b"from the client", b"from the server")


@pytest.mark.parametrize(
    ("ago", "client_says", "server_says"),
    [
        (timedelta(days=366), keys.EXPIRED, keys.EXPIRED),
        (timedelta(days=-2), keys.TOO_EARLY, keys.REFUSED),
    ],
    ids=["expired", "not yet valid"],
)
def test_a_key_out_of_its_time_says_so(tmp_path: Path, ago: timedelta, client_says: str, server_says: str) -> None:
    key = made(tmp_path / "key.pem", ago)
    server, client = meet(server_context(key), client_context(key))
    assert sentence(client) == client_says
    assert sentence(server) == server_says


# Sentences ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError("timed out"), keys.TIMED_OUT),
        (ConnectionRefusedError(111, "Connection refused"), keys.NOT_LISTENING),
        (ConnectionResetError(104, "Connection reset by peer"), keys.CLOSED),
        (BrokenPipeError(32, "Broken pipe"), keys.CLOSED),
        (OSError(113, "No route to host"), "the connection failed: No route to host"),
        (OSError("strange"), "the connection failed: strange"),
        (ssl.SSLError(1, "strange"), "the TLS handshake failed: strange"),
    ],
)
def test_every_failure_has_a_sentence(error: OSError, expected: str) -> None:
    assert explain(error) == expected


def test_a_key_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    make_key_file(path)
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)
    with pytest.raises(UsageError, match=r"belongs to another user \(user id 12345\)"):
        client_context(path)


# Secrets --------------------------------------------------------------------------------------------------------------


def test_both_sides_derive_the_same_key_from_a_secret() -> None:
    one, two = (key_from_variable("correct horse battery staple") for _ in range(2))
    assert one == two
    assert meet(server_context(one), client_context(two)) == (b"from the client", b"from the server")


def test_another_secret_is_another_key() -> None:
    one, other = (key_from_variable(secret) for secret in ("correct horse battery staple", "incorrect horse battery"))
    accepted, called = meet(server_context(one), client_context(other))
    assert "different keys" in sentence(accepted)
    assert isinstance(called, OSError)


def test_the_content_of_a_key_file_will_do(key: Path) -> None:
    content = key_from_variable(key.read_text())
    assert meet(server_context(content), client_context(key)) == (b"from the client", b"from the server")


@pytest.mark.parametrize("text", ["guess", "fifteen letters"])
def test_a_short_secret_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"SYNCLINE_KEY: has .* characters; use a random secret of at least 16"):
        key_from_variable(text)


def test_half_of_a_key_file_is_refused(key: Path) -> None:
    for text in (key.read_text()[:-200], key.read_text().partition("-----BEGIN CERT")[0]):
        with pytest.raises(UsageError, match="SYNCLINE_KEY: does not hold the whole content of a key file"):
            server_context(key_from_variable(text))


def test_the_option_overrides_the_environment(key: Path, tmp_path: Path) -> None:
    environment = {"SYNCLINE_KEY_FILE": str(key), "SYNCLINE_KEY": "correct horse battery staple"}
    assert key_of_user(tmp_path / "another", environment) == (str(tmp_path / "another"), "")
    assert key_of_user(None, environment) == (str(key), "")
    assert key_of_user(None, {"SYNCLINE_KEY": environment["SYNCLINE_KEY"]})[1].startswith("-----BEGIN PRIVATE KEY")
    assert key_of_user(None, {}) == ("", "")
