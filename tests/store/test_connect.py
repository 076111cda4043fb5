"""What a person reads when the Redis that was named cannot be used: one line, what, why, what to do, no password."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.store.refused import PASSWORD, SHORT, refusal
from unknot.recovery.errors import ConfigError
from unknot.supervisor.store.address import shown_address
from unknot.supervisor.store.probe import classify
from unknot.supervisor.store.redis_store import RedisStore

SETTINGS_FRAME = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)
OLD = b"# Server\r\nredis_version:5.0.7\r\nprocess_id:1\r\n"


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A loopback server that runs `serve` on every connection; its port."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        lines: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                lines.append(line)
                threading.Thread(target=serve, args=(line,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for line in lines:
            line.close()


def grpc(line: socket.socket) -> None:
    line.sendall(SETTINGS_FRAME)
    line.recv(1000)
    line.close()


def http(line: socket.socket) -> None:
    line.recv(1000)
    line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    line.close()


def closes(line: socket.socket) -> None:
    line.close()


def mute(line: socket.socket) -> None:
    while line.fileno() >= 0 and line.recv(1000):
        pass


def old_redis(line: socket.socket) -> None:
    while received := line.recv(1000):
        for _ in range(received.count(b"*")):
            if b"INFO" in received:
                line.sendall(b"$%d\r\n%s\r\n" % (len(OLD), OLD))
            elif b"PING" in received:
                line.sendall(b"+PONG\r\n")
            else:
                line.sendall(b"+OK\r\n")


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        (grpc, "a gRPC server answers there, most likely Ray's GCS, whose default port is also 6379"),
        (closes, "what listens there is not Redis"),
        (mute, "it gave no answer to PING (Ray's GCS, whose default port is also 6379?)"),
        (http, "an HTTP server answers there"),
        (old_redis, "it is Redis 5.0.7, 6.2 or newer is needed; upgrade it"),
    ],
)
def test_what_listens_there_is_named(serve: Callable[[socket.socket], None], said: str) -> None:
    with listener(serve) as port:
        error = refusal(f"redis://:{PASSWORD}@127.0.0.1:{port}/0")
    assert said in str(error)
    assert str(error).startswith(f"cannot use Redis at 127.0.0.1:{port}/0: ")


def test_a_port_where_nobody_listens_is_said_to_be_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = refusal(f"redis://:{PASSWORD}@127.0.0.1:{port}")
    assert "it cannot be reached" in str(error)
    assert str(error).endswith("check host, port and that Redis runs")


def test_a_host_that_does_not_exist_is_said_to_be_unreachable() -> None:
    assert "it cannot be reached" in str(refusal(f"redis://:{PASSWORD}@no-such-host.invalid:6379"))


def test_a_wrong_and_a_missing_password_are_told_apart(redis_url: str) -> None:
    address = redis_url.rpartition("@")[2]
    wrong = str(refusal(f"redis://:{PASSWORD}@{address}"))
    missing = str(refusal(f"redis://{address}"))
    assert "it refuses this user or password (WRONGPASS); check user and password in the URL" in wrong
    assert "it wants a password (NOAUTH)" in missing


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"http://:{PASSWORD}@host:6379", "starts with http://"),
        ("host:6379", "has no scheme such as redis://"),
        (f"redis://:{PASSWORD}@", "names no host"),
        (f"redis://:pass/{PASSWORD}@host:6379", "its port is no number"),
        ("", "has no scheme"),
    ],
)
def test_a_url_that_is_none_is_refused_with_an_example(url: str, said: str) -> None:
    error = refusal(url)
    assert said in str(error)
    assert "give it as redis://:PASSWORD@HOST:PORT/0" in str(error)


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("host/0?bogus=1", "has an option 'bogus' that Unknot does not take there; it may have db, username"),
        ("host/0?client_nam=x", "has an option 'client_nam' that Unknot does not take there; did you mean 'client_name'?"),
        ("host/0?decode_responses=true", "has an option 'decode_responses' that Unknot does not take there"),
        ("host/0?socket_timeout=1", "has an option 'socket_timeout' that Unknot does not take there"),
        ("host/0?db=x", "has db= with a value that it cannot have; give the number of a database"),
        ("host/0?db=-1", "has db= with a value that it cannot have"),
        ("host/0?db=", "has db= with a value that it cannot have"),
        ("host/0?health_check_interval=often", "has health_check_interval= with a value"),
        ("host/0?ssl_ca_certs=ca.pem", "has ssl_ca_certs=, which is for TLS; begin it with rediss://"),
        ("host/abc", "is no number of a database; end it with /0"),
        ("host/-1", "is no number of a database"),
        ("host/0/1", "is no number of a database"),
        ("host:0", "with a port from 1 to 65535"),
        ("host:99999/0", "with a port from 1 to 65535"),
        ("[::1", "the URL of Redis cannot be read"),
        ("host/0#part", "has an unescaped sign in its password, or a part after '#'"),
    ],
)
def test_a_url_with_a_part_that_redis_cannot_use_is_refused_before_anything_is_reached(tail: str, said: str) -> None:
    error = refusal(f"redis://:{PASSWORD}@{tail}")
    assert isinstance(error, ConfigError)
    assert said in str(error)


@pytest.mark.parametrize("sign", ["#", "/", "?"])
@pytest.mark.parametrize("before", ["", "1", "word", "user:"])
def test_a_password_with_an_unescaped_sign_is_never_shown_and_the_escapes_are_told(before: str, sign: str) -> None:
    error = refusal(f"redis://{'' if ':' in before else ':'}{before}{sign}{PASSWORD}@host:6379/0")
    assert isinstance(error, ConfigError)
    assert "%23" in str(error)
    assert "word" not in str(error).replace("PASSWORD", "").replace("password", "")


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("?ssl_cert_reqs=sometimes", "give none, optional or required"),
        ("?ssl_check_hostname=maybe", "give true or false"),
        ("?ssl_min_version=1.2", "771 for 1.2 or 772 for 1.3"),
    ],
)
def test_options_of_tls_are_checked_too(tail: str, said: str) -> None:
    assert said in str(refusal(f"rediss://:{PASSWORD}@127.0.0.1:1/0{tail}"))


def test_a_socket_without_a_path_is_refused() -> None:
    assert "names no socket" in str(refusal("unix://"))
    assert "no option" not in str(refusal("unix:///nowhere/redis.sock?db=1"))


def test_what_a_url_may_set_is_taken(redis_url: str) -> None:
    with RedisStore.connect(f"{redis_url}?db=1&client_name=trainer&health_check_interval=3", "ppo-17", limits=SHORT) as store:
        assert store.command("CLIENT", "GETNAME") == b"trainer"


def test_a_database_that_the_server_does_not_have_is_told(redis_url: str) -> None:
    error = refusal(f"{redis_url.removesuffix('/0')}/12345")
    assert "name a database that it has" in str(error)


def test_an_address_is_shown_without_user_and_password() -> None:
    assert shown_address(f"redis://user:{PASSWORD}@host:7000/2") == "host:7000/2"
    assert shown_address("rediss://host") == "host:6379"
    assert shown_address("unix:///run/redis.sock") == "/run/redis.sock"


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", "a..b", ".b", "a%00b", "a%0ab", "ä..b", "a%20b"])
def test_a_host_that_no_name_server_can_know_is_refused_before_it_is_asked(host: str) -> None:
    error = refusal(f"redis://:{PASSWORD}@{host}:6379/0")
    assert isinstance(error, ConfigError)
    assert str(error).startswith("the host of the URL of Redis ")
    assert "127.0.0.1" in str(error) or "write the bare name" in str(error)


def test_hosts_that_can_be_are_taken() -> None:
    for host, port in (("redis.example.", 1), ("[::1]", 2), ("bücher.example", 3), ("a_b", 4)):
        assert shown_address(f"redis://{host}:{port}").endswith(f":{port}")


def test_a_socket_whose_path_has_a_nul_is_refused() -> None:
    assert "its path has a NUL" in str(refusal("unix:///run/a%00b.sock"))


def test_a_run_name_is_checked_before_anything_is_reached() -> None:
    with pytest.raises(ConfigError, match="cannot name a run"):
        RedisStore.connect("redis://127.0.0.1:1", "two words")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"+PONG\r\n", None),
        (b"-NOAUTH Authentication required.\r\n", None),
        (SETTINGS_FRAME, "grpc"),
        (b"\x00\x00\x08\x07\x00\x00\x00\x00\x00", "grpc"),
        (b"HTTP/1.0 400", "http"),
        (b"", "mute"),
        (b"SSH-2.0-OpenSSH", "mute"),
    ],
)
def test_the_first_bytes_tell_the_kind_of_server(said: bytes, kind: str | None) -> None:
    assert classify(said) == kind
