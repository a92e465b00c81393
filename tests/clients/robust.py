"""Hostile clients: noise, floods, and oversized requests."""

import json
import random
import resource
import socket
import time

import httpx

from operation import check_alive, connect, raw, read_all, request
from serving import HELLO, Server, wait_idle

# Valid requests of every path; the tests mutate them.
ASKED = {
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "Be kind."}, *HELLO],
        "max_tokens": 2,
        "temperature": 0.5,
        "stop": ["\n"],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}],
        "tool_choice": "auto",
    },
    "/v1/completions": {"prompt": ["Once", "There"], "max_tokens": 2, "logit_bias": {"3": 1.5}, "logprobs": 2, "seed": 7},
    "/tokenize": {"content": "Once upon a time"},
    "/detokenize": {"tokens": [1, 2, 3]},
}
STRANGE = [None, True, -1, 0, 1 << 40, 1 << 63, 1 << 64, -(1 << 63) - 1, 1e300, -1e-300, 0.5, "", "\0", "x" * 10_000, [], [[]], {}, {"a": {}}, [None]]
MEGABYTE = 1 << 20


def statuses(server: Server, path: str, bodies) -> set[int]:
    """The statuses of responses to these bodies; none may be a 500."""
    found = set()
    with httpx.Client(timeout=60) as client:
        for body in bodies:
            answer = client.post(server.place + path, content=body)
            assert answer.status_code in (200, 400, 404, 408, 413), (path, body[:300], answer.text)
            assert answer.status_code == 200 or answer.json()["error"], (path, body[:300], answer.text)
            found.add(answer.status_code)
    return found


def rss(server: Server, kind="RssAnon") -> int:
    """Bytes of memory that the process has to itself."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(kind))


def test_paths_that_are_no_text_are_refused(server: Server):
    """In the form of the interface."""
    for path in ("/v1/models/%ff", "/props?model=a&model=b", "/v1/models/" + "x" * 10_000, "/props?" + "a=b&" * 1000 + "model=%ff"):
        answer = httpx.get(server.place + path)
        assert answer.status_code in (400, 404) and answer.json()["error"]["message"], (path[:60], answer.text)


def test_noise_is_refused(server: Server):
    """Bytes that mean nothing, and texts that are cut."""
    dice = random.Random(1)
    for path, asked in ASKED.items():
        whole = json.dumps(asked).encode()
        noise = [dice.randbytes(dice.randrange(200)) for _ in range(40)]
        cut = [whole[:at] for at in range(0, len(whole) - 1, 7)]
        assert statuses(server, path, noise + cut) == {400}
    check_alive(server)


def test_texts_with_bytes_changed_do_no_harm(server: Server):
    """Some are requests still."""
    dice = random.Random(2)

    def changed(whole: bytes) -> bytes:
        text = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(text))
            text[at : at + dice.randrange(3)] = dice.choice([b"", b"9", b'"', b"{", b"]", b"\xff", b"\\u", b"e", b"null"])
        return bytes(text)

    for path, asked in ASKED.items():
        whole = json.dumps(asked).encode()
        assert 400 in statuses(server, path, [changed(whole) for _ in range(150)])
    wait_idle(server)


def test_strange_values_do_no_harm(server: Server):
    """In every field, and one level below."""
    # So many answers of any length would take hours.
    length = {"max_tokens": 2}
    for path, asked in ASKED.items():
        bodies = []
        for field in asked:
            for value in STRANGE:
                bodies += [{**asked, field: value}, {**asked, field: [value]}, {**asked, field: {"type": value}}]
        whole = [json.dumps({**body, **length} if "max_tokens" in asked else body).encode() for body in bodies]
        assert 400 in statuses(server, path, whole)
    wait_idle(server)


def test_strange_messages_and_tools_do_no_harm(server: Server):
    """Every part of them in turn."""
    message = {"role": "assistant", "content": "x", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    function = {"name": "f", "description": "x", "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}}
    bodies = []
    for value in STRANGE:
        bodies += [{"messages": [{**message, field: value}, *HELLO]} for field in message]
        bodies += [{"messages": HELLO, "tools": [{"type": "function", "function": {**function, field: value}}]} for field in function]
        bodies += [{"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}]
    path = "/v1/chat/completions"
    assert statuses(server, path, [json.dumps({**body, "max_tokens": 2}).encode() for body in bodies]) == {200, 400}
    wait_idle(server)


def test_numbers_that_no_machine_holds_are_refused(server: Server):
    """Numbers of a thousand digits, out of range, and values that are no numbers."""
    for number in ("9" * 1000, "1e400", "-1e400", "NaN", "Infinity", "0x10", "1" * 100_000, "1e-99999999"):
        for field in ("max_tokens", "temperature", "seed", "top_k"):
            body = f'{{"prompt": "x", "n": 1, "{field}": {number}}}'.encode()
            assert statuses(server, "/v1/completions", [body]) <= ({400, 200} if number == "1e-99999999" else {400}), (field, number[:20])
    check_alive(server)


def test_a_field_that_comes_twice_counts_once(server: Server):
    """The last one, as in other servers; so do a hundred thousand."""
    twice = b'{"content": "a", "content": "Once upon a time"}'
    answer = httpx.post(f"{server.place}/tokenize", content=twice)
    assert answer.status_code == 200 and answer.json()["tokens"] == server.tokens("Once upon a time"), answer.text
    many = b"{" + b'"max_tokens": 1, ' * 100_000 + b'"prompt": "x"}'
    assert statuses(server, "/v1/completions", [many]) == {200}


def test_deep_json_is_refused_everywhere(server: Server):
    """100,000 brackets of each kind, alone and as the value of a field."""
    for path, asked in ASKED.items():
        for deep in (b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000):
            fields = [b'{"' + field.encode() + b'": ' + deep + b"}" for field in asked]
            assert statuses(server, path, [deep, *fields]) == {400}
    schema = json.dumps({"type": "array"})
    for _ in range(40):
        schema = f'{{"type": "array", "items": {schema}}}'
    body = {"messages": HELLO, "max_tokens": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": json.loads(schema)}}}
    assert statuses(server, "/v1/chat/completions", [json.dumps(body).encode()]) <= {200, 400}
    check_alive(server)


def test_100_megabytes_are_refused_and_not_kept(server: Server):
    """With a length, and in chunks without one; several at a time."""
    part = b"x" * 65536
    heads = [
        f"content-length: {100 * MEGABYTE}\r\n\r\n".encode(),
        b"transfer-encoding: chunked\r\n\r\n",
    ]
    check_alive(server)
    before, most = rss(server), 0
    for head in heads * 2:
        frame = part if b"length" in head else b"10000\r\n" + part + b"\r\n"
        with connect(server, timeout=30) as sock:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n" + head)
            try:
                for _ in range(100 * MEGABYTE // len(part)):
                    sock.sendall(frame)
                    most = max(most, rss(server))
            except OSError:
                pass
            answer = b""
            try:
                answer = sock.recv(1000)
            except ConnectionResetError:
                pass
        assert not answer or b" 413 " in answer.split(b"\r\n")[0], answer[:100]
    # A body may have 16 MB before it is too large.
    assert most < before + 24 * MEGABYTE, f"{(most - before) / MEGABYTE:.0f} MB more"
    check_alive(server)


def test_floods_of_headers_are_refused(server: Server):
    """Many, long, and strange ones."""
    floods = [
        b"".join(b"x-%d: y\r\n" % i for i in range(2000)),
        b"x-a: " + b"b" * 60_000 + b"\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n",
        b"content-length: -1\r\n",
        b"content-length: 99999999999999999999999\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"transfer-encoding: gzip, nothing\r\n",
        b": no name\r\n",
        b"a b: c\r\n",
        b"x: a\rb\r\n",
        b"\0: \0\r\n",
    ]
    for flood in floods:
        sent = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + flood + b'\r\n{"a'
        with connect(server, timeout=60) as sock:
            try:
                sock.sendall(sent)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            status = read_all(sock).split(b"\r\n")[0]
        assert status[9:12] in (b"", b"400", b"408", b"413", b"431"), (flood[:40], status)
    check_alive(server)


def test_chunks_that_are_none_are_refused(server: Server):
    """Lengths that are no numbers, too long, or of more than comes."""
    for chunk in (b"zz\r\n", b"-1\r\n", b"fffffffffffffffff\r\n", b"5\r\nab\r\n0\r\n\r\n", b"1;" + b"x" * 100_000 + b"\r\na\r\n0\r\n\r\n", b"\r\n\r\n"):
        sent = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunk
        with connect(server, timeout=60) as sock:
            try:
                sock.sendall(sent)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            status = read_all(sock).split(b"\r\n")[0]
        assert status[9:12] in (b"", b"400", b"413"), (chunk[:40], status)
    check_alive(server)


def test_lines_that_are_no_requests_are_refused(server: Server):
    """Noise where a head is expected, and beginnings of other protocols."""
    dice = random.Random(3)
    noise = [dice.randbytes(300).replace(b"\n", b"\r\n") + b"\r\n\r\n" for _ in range(40)]
    others = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, b"SSH-2.0-OpenSSH\r\n\r\n", b"\r\n" * 50_000]
    for sent in noise + others:
        with connect(server, timeout=60) as sock:
            try:
                sock.sendall(sent)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            answer = read_all(sock)
        assert answer == b"" or answer[9:12] in (b"400", b"431", b"505"), (sent[:40], answer[:100])
    check_alive(server)


def test_a_thousand_pipelined_requests_are_answered(server: Server):
    """And a client that reads none of the answers is not answered for ever."""
    last = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert raw(server, request("/health") * 999 + last).count(b"HTTP/1.1 200") == 1000
    with server.another("--timeout", "2") as hasty:
        before = rss(hasty)
        with connect(hasty, timeout=20) as sock:
            start = time.monotonic()
            try:
                while time.monotonic() - start < 15:
                    sock.sendall(request("/") * 100)
            except OSError:
                pass
            assert time.monotonic() - start < 14, "it was never cut"
        assert rss(hasty) < before + 8 * MEGABYTE
        check_alive(hasty)


def test_connections_that_come_and_go_leave_nothing(server: Server):
    """A thousand that say nothing, half a request, or leave in the middle of an answer."""
    stream = request("/v1/completions", json.dumps({"prompt": "x", "max_tokens": 50, "stream": True}).encode())
    parts = [b"", b"GET /", request("/health"), stream[:-5], stream]
    for i in range(1000):
        with connect(server) as sock:
            sock.sendall(parts[i % len(parts)])
    wait_idle(server)
    check_alive(server)


def idle_connections(server: Server, n: int) -> list[socket.socket]:
    """Idle connections, each after one answered request."""
    socks = [connect(server, timeout=60) for _ in range(n)]
    for sock in socks:
        sock.sendall(request("/health"))
    for sock in socks:
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    return socks


def slow_10_000_idle_connections_do_no_harm(server: Server):
    """Others are answered meanwhile; what each costs is printed."""
    n = 10_000
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limits[1] if limits[1] != resource.RLIM_INFINITY else 65536
    assert most >= n + 1000, f"this system allows {most} files"
    # What the server is started with, too.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    with server.another("-c", "4096", "--connections", "12000", "--timeout", "600") as wide:
        chat = {"messages": HELLO, "max_tokens": 4}
        assert wide.post("/v1/chat/completions", **chat).status_code == 200
        before, idle = rss(wide), []
        for n_open in (64, n):
            idle += idle_connections(wide, n_open - len(idle))
            more = rss(wide) - before
            print(f"{n_open} idle connections: {more / MEGABYTE:.1f} MB more, {more / n_open:.0f} bytes each")
            assert n_open > 64 or more < 5 * MEGABYTE
        start = time.monotonic()
        assert wide.post("/v1/chat/completions", **chat).status_code == 200
        print(f"an answer among them: {time.monotonic() - start:.2f} s")
        for sock in idle:
            sock.close()
        check_alive(wide)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
