"""Operation of the server: malformed requests, many connections, signals."""

import gzip
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import zlib

import httpx

from serving import HELLO, LONG, Server, events, wait_idle, wait_until

STREAM = {"messages": HELLO, "response_format": LONG, "stream": True}


def connect(server: Server, timeout=10) -> socket.socket:
    return socket.create_connection(server.address, timeout=timeout)


def request(path: str, body: bytes | None = None, method=None) -> bytes:
    """A request as it goes over the wire."""
    method = method or ("GET" if body is None else "POST")
    length = "" if body is None else f"content-length: {len(body)}\r\n"
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{length}\r\n".encode() + (body or b"")


def read_all(sock: socket.socket) -> bytes:
    """Until the server closes."""
    parts = []
    try:
        while part := sock.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def raw(server: Server, *sent: bytes) -> bytes:
    """What comes back until the server closes."""
    with connect(server) as sock:
        for part in sent:
            sock.sendall(part)
        return read_all(sock)


def check_alive(server: Server):
    assert httpx.get(f"{server.place}/health", timeout=10).json() == {"status": "ok"}


def test_what_is_not_there_is_said_so(server: Server):
    """Paths and methods, with an error in the interface's form."""
    for path in ("/v1/moderations", "/v2", "/../etc/passwd", "/%00", "/%ff"):
        answer = httpx.get(server.place + path)
        assert answer.status_code == 404 and answer.json()["error"]["type"] == "invalid_request_error", (path, answer.text)
    for method, path in (("GET", "/v1/chat/completions"), ("DELETE", "/health"), ("BREW", "/v1/models"), ("PUT", "/v1/completions"), ("GET", "/v1/chat/completions/")):
        answer = httpx.request(method, server.place + path)
        assert answer.status_code == 405 and answer.json()["error"]["message"] and "allow" in answer.headers, (method, path, answer.text)


def test_every_answer_has_its_id(server: Server):
    """Constant ones, errors, and streams; no two are the same."""
    paths = ["/", "/style.css", "/app.js", "/health", "/props", "/metrics", "/v1/models", "/nothing", "/v1/completions"]
    answers = [httpx.get(server.place + path) for path in paths * 2]
    answers.append(server.post("/v1/chat/completions", messages=HELLO, max_tokens=2, stream=True))
    ids = [answer.headers.get("x-request-id") for answer in answers]
    assert all(ids) and len(set(ids)) == len(ids), ids


def test_constant_answers(server: Server):
    """What watchers and pages rely on."""
    props = httpx.get(f"{server.place}/props").json()
    assert props["n_ctx"] == 4096 and props["total_slots"] == 8 and props["model"] == server.model(), props
    ids = server.tokens("Once upon a time")
    assert server.post("/detokenize", tokens=ids).json()["content"].strip() == "Once upon a time"
    assert server.post("/detokenize", tokens=[99999999]).status_code == 400
    metrics = httpx.get(f"{server.place}/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert httpx.head(f"{server.place}/health").status_code == 200


def test_bytes_that_are_no_text_are_refused(server: Server):
    """In the body, in a header, in the path, in the first line."""
    answer = httpx.post(f"{server.api}/chat/completions", content=b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}')
    assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error", answer.text
    assert server.post("/v1/chat/completions", messages=[{"role": "user", "content": "a\0b"}], max_tokens=1).status_code == 200
    surrogate = httpx.post(f"{server.api}/chat/completions", content=rb'{"messages": [{"role": "user", "content": "\ud800"}]}')
    assert surrogate.status_code == 400, surrogate.text
    assert b" 400 " in raw(server, b"\xff\xff\xff\xff\r\n\r\n").split(b"\r\n")[0]
    assert b" 200 " in raw(server, b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-odd: \xff\xfe\r\nconnection: close\r\n\r\n")
    check_alive(server)


def test_json_that_is_deep_or_strange_is_refused(server: Server):
    """Nothing of it ends the server."""
    for body in (b"", b"[]", b"null", b"{", b"[" * 100_000, b'{"messages": 1e999}', b'{"messages": {}}', b'{"a": ' * 50_000):
        answer = httpx.post(f"{server.api}/chat/completions", content=body, timeout=20)
        assert answer.status_code == 400, (body[:20], answer.text)
    check_alive(server)


def test_a_head_without_end_is_refused(server: Server):
    """More than 64 KiB of it."""
    with connect(server) as sock:
        try:
            sock.sendall(b"GET /health HTTP/1.1\r\n" + b"x-a: " + b"b" * (1 << 20))
        except OSError:
            pass
        head = read_all(sock)
    assert head == b"" or b" 431 " in head.split(b"\r\n")[0], head[:100]
    check_alive(server)


def test_a_half_closed_connection_ends(server: Server):
    """A client that closed its side for writing is answered or dropped; the server never decodes for a closed connection."""
    with connect(server) as sock:
        sock.sendall(request("/v1/chat/completions", json.dumps(STREAM).encode()))
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(60)
        read_all(sock)
    wait_idle(server)


def test_a_half_closed_request_is_answered_or_left(server: Server):
    """As `nc -N` sends them: constant answers come at once; generated ones come whole, or not at all."""
    body = json.dumps({"messages": HELLO, "max_tokens": 40}).encode()
    whole = {request("/health"): [b"200"], request("/v1/chat/completions", body): [b"200", b""]}
    for sent, codes in whole.items():
        with connect(server) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            head, _, content = read_all(sock).partition(b"\r\n\r\n")
        assert head[9:12] in codes and (not head or json.loads(content)), (sent[:30], head)
    wait_idle(server)


def test_slow_clients_are_cut(server: Server):
    """A head, or a body, of one byte a second does not keep its place."""
    with server.another("--timeout", "2") as hasty:
        for start in (b"GET /health HTTP/1.1\r\n", request("/v1/chat/completions", b"x" * 100)[:-90]):
            begin = time.monotonic()
            with connect(hasty) as sock:
                sock.sendall(start)
                seconds = drip(sock)
            assert seconds < 5, f"{seconds:.1f} s for {start!r}"
            assert time.monotonic() - begin < 8
        check_alive(hasty)
        wait_until(lambda: hasty.count("connections") <= 1, "connections are still there", 5)


def drip(sock: socket.socket) -> float:
    """Sends a byte now and then, until the server closes; how long that took."""
    start = time.monotonic()
    sock.settimeout(0.5)
    while time.monotonic() - start < 8:
        try:
            sock.sendall(b"a")
            if sock.recv(1000) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - start


def test_a_body_that_breaks_off_is_no_request(server: Server):
    """The connection ends, and no job is there."""
    with connect(server) as sock:
        sock.sendall(request("/v1/chat/completions", b"x" * 1000)[:-500])
    wait_idle(server)
    check_alive(server)


def test_a_body_of_twenty_megabytes_is_refused(server: Server):
    """With 413, sent as a whole, in chunks, and where only its length has come."""
    big = b'{"messages": "' + b"x" * (20 << 20) + b'"}'
    url = f"{server.api}/chat/completions"
    assert httpx.post(url, content=big, timeout=30).status_code == 413
    assert httpx.post(url, content=(big[at : at + 65536] for at in range(0, len(big), 65536)), timeout=30).status_code == 413
    check_alive(server)


def test_a_length_beyond_the_limit_is_refused_at_once(server: Server):
    """Nobody has to send twenty megabytes to be told that they are too many; `Expect: 100-continue` is there for that."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 20971520\r\n\r\n"
    with connect(server, timeout=5) as sock:
        sock.sendall(head)
        assert b" 413 " in sock.recv(1000).split(b"\r\n")[0]


def test_bodies_have_the_limit_that_is_asked_for(server: Server):
    """--max-body."""
    with server.another("--max-body", "1M") as narrow:
        assert narrow.post("/tokenize", content="a" * (2 << 20)).status_code == 413
        assert narrow.post("/tokenize", content="a" * (1 << 19)).status_code == 200


def test_a_packed_body_is_unpacked_as_far_as_it_may_be(server: Server):
    """gzip and deflate; a bomb takes no more memory than the limit, and other packings are told which ones there are."""
    url, body = f"{server.place}/tokenize", json.dumps({"content": "Hello!"}).encode()
    for encoding, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("identity", body)):
        answer = httpx.post(url, content=packed, headers={"content-encoding": encoding})
        assert answer.status_code == 200 and answer.json() == server.post("/tokenize", content="Hello!").json(), answer.text
    bomb = gzip.compress(b'{"content": "' + b" " * (200 << 20), 1)
    assert httpx.post(url, content=bomb, headers={"content-encoding": "gzip"}, timeout=30).status_code == 413
    unknown = httpx.post(url, content=body, headers={"content-encoding": "br"})
    assert unknown.status_code == 415 and "gzip" in unknown.json()["error"]["message"], unknown.text
    check_alive(server)


def test_paths_may_lack_v1_and_end_with_a_slash(server: Server):
    """As base addresses differ."""
    for path in ("/chat/completions", "/chat/completions/", "/v1/chat/completions/"):
        assert server.post(path, messages=HELLO, max_tokens=2).json()["object"] == "chat.completion", path
    assert server.post("/completions", prompt="a", max_tokens=2).json()["object"] == "text_completion"
    assert server.post("/embeddings", input="a").json()["object"] == "list"
    for path in ("/models", "/v1/models/", "/v1/health", f"/models/{server.model()}"):
        assert httpx.get(server.place + path).status_code == 200, path


def test_llama_cpps_own_paths_are_there(server: Server):
    """What its clients ask for beside OpenAI's."""
    fields = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0, "cache_prompt": True}
    whole = server.post("/completion", **fields).json()
    assert whole["stop"] and whole["tokens_predicted"] <= 8 and whole["timings"]["predicted_n"] == whole["tokens_predicted"], whole
    parts = [json.loads(data) for data in events(server.post("/completion", **fields, stream=True))]
    assert "".join(part["content"] for part in parts) == whole["content"] and parts[-1]["stop"], parts
    slots = httpx.get(f"{server.place}/slots").json()
    assert len(slots) == 8 and not any(slot["is_processing"] for slot in slots), slots
    assert "Hello!" in server.post("/apply-template", messages=HELLO).json()["prompt"]
    assert httpx.get(f"{server.place}/props").json()["default_generation_settings"]["n_ctx"] == 4096
    for path in ("/reranking", "/rerank", "/v1/rerank"):
        assert server.post(path, query="a", documents=["b"]).status_code == 501, path


def test_pipelined_requests_are_answered_in_order(server: Server):
    """Four at once on one connection."""
    body = json.dumps({"messages": HELLO, "max_tokens": 2}).encode()
    close = b"GET /props HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = raw(server, request("/health") + request("/v1/chat/completions", body) + request("/nothing") + close)
    marks = [b'{"status":"ok"}', b"chat.completion", b"there is nothing at", b"total_slots"]
    places = [answer.find(mark) for mark in marks]
    assert answer.count(b"HTTP/1.1 ") == 4 and -1 not in places and places == sorted(places), answer[:300]


def test_a_connection_is_kept(server: Server):
    """Also after errors and streams."""
    path, fields, ports = "/v1/chat/completions", {"messages": HELLO, "max_tokens": 2}, set()
    asked = [("/health", None), ("/nothing", None), (path, fields), (path, {**fields, "stream": True}), (path, {}), ("/health", None)]
    with httpx.Client(timeout=30) as client:
        for path, sent in asked:
            with client.stream("GET" if sent is None else "POST", server.place + path, json=sent) as answer:
                answer.read()
                ports.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
    assert len(ports) == 1, ports


def test_http_1_0_is_answered(server: Server):
    """As old checkers of health speak it."""
    assert raw(server, b"GET /health HTTP/1.0\r\n\r\n").endswith(b'{"status":"ok"}')


def test_idle_connections_do_no_harm(server: Server):
    """300 of them, while a request is served."""
    idle = [connect(server) for _ in range(300)]
    try:
        assert server.post("/v1/chat/completions", messages=HELLO, max_tokens=4).status_code == 200
        assert server.count("connections") >= 300
    finally:
        for sock in idle:
            sock.close()
    wait_until(lambda: server.count("connections") < 20, "connections are still there")


def test_connections_have_a_limit(server: Server):
    """Connections beyond the limit wait, and are served when others close."""
    with server.another("--connections", "4", "--timeout", "20") as narrow:
        held = [connect(narrow) for _ in range(4)]
        time.sleep(0.3)
        with connect(narrow, timeout=1) as fifth:
            fifth.sendall(request("/health"))
            try:
                assert fifth.recv(100) == b"", "it was served beyond the limit"
            except TimeoutError:
                pass
            held.pop().close()
            assert fifth.recv(100).startswith(b"HTTP/1.1 200")
        for sock in held:
            sock.close()


def check_stream_ends(server: Server, kind: int):
    """A stream that has begun goes on to its end, and then the server is gone."""
    answers = []
    fields = {**STREAM, "max_tokens": 300}
    thread = threading.Thread(target=lambda: answers.append(httpx.post(f"{server.api}/chat/completions", json=fields, timeout=60)))
    thread.start()
    wait_until(lambda: server.count("generated_tokens_total") > 5, "no text is written")
    server.process.send_signal(kind)
    thread.join(60)
    assert answers, "the stream broke off"
    data = events(answers[0])
    reason = json.loads(data[-2])["choices"][0]["finish_reason"]
    assert data[-1] == "[DONE]" and reason == "length", data[-2:]
    assert server.process.wait(10) == 0, server.process.returncode


def test_sigint_lets_a_stream_end(server: Server):
    """And the program ends with 0."""
    with server.another("-c", "4096") as mortal:
        check_stream_ends(mortal, signal.SIGINT)


def test_sigterm_lets_a_stream_end(server: Server):
    """As systemd and containers ask."""
    with server.another("-c", "4096") as mortal:
        check_stream_ends(mortal, signal.SIGTERM)


def test_a_stopping_server_accepts_no_connection(server: Server):
    """New connections are refused at once, even while a stream is still being written."""
    with server.another("-c", "4096") as mortal, connect(mortal) as stream:
        stream.sendall(request("/v1/chat/completions", json.dumps(STREAM).encode()))
        wait_until(lambda: mortal.count("generated_tokens_total") > 5, "no text is written")
        mortal.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert mortal.process.poll() is None, "it ended before its stream"
        start = time.monotonic()
        try:
            httpx.get(f"{mortal.place}/health", timeout=2)
        except httpx.TransportError:
            pass
        assert time.monotonic() - start < 1, "the connection was taken and left to wait"


def test_a_second_signal_cuts(server: Server):
    """The second signal does not wait for streams."""
    with server.another("-c", "4096") as mortal, connect(mortal) as stream:
        stream.sendall(request("/v1/chat/completions", json.dumps({**STREAM, "n": 8}).encode()))
        wait_until(lambda: mortal.count("generated_tokens_total") > 5, "no text is written")
        mortal.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        mortal.process.send_signal(signal.SIGINT)
        start = time.monotonic()
        mortal.process.wait(10)
        assert time.monotonic() - start < 2, "it went on"


def test_idle_connections_do_not_keep_a_server(server: Server):
    """Neither those that never asked nor those that were answered."""
    with server.another() as mortal, connect(mortal) as silent, connect(mortal) as kept:
        kept.sendall(request("/health"))
        assert kept.recv(1000)
        mortal.process.send_signal(signal.SIGTERM)
        assert mortal.process.wait(5) == 0
        assert silent.recv(10) == b""


def test_a_socket_in_the_file_system(server: Server):
    """It serves, is gone at the end, and replaces one that was left behind."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "atta.sock")
        for kind in (signal.SIGKILL, signal.SIGTERM):
            with server.another(at=("--unix", path)) as local:
                assert local.place == f"unix:{path}"
                with httpx.Client(transport=httpx.HTTPTransport(uds=path), timeout=30) as client:
                    answer = client.post("http://x/v1/chat/completions", json={"messages": HELLO, "max_tokens": 2})
                assert answer.status_code == 200, answer.text
                local.process.send_signal(kind)
                local.process.wait(10)
        assert not os.path.exists(path)


def refusal_of(server: Server, *flags: str) -> subprocess.CompletedProcess:
    return subprocess.run([server.atta, "serve", *flags], capture_output=True, text=True, timeout=30)


def test_other_machines_need_a_key(server: Server):
    """Without a key or an explicit option the server does not start; exit code 2."""
    refused = refusal_of(server, "--port", "0", "--host", "0.0.0.0")
    assert refused.returncode == 2 and "--api-key" in refused.stderr and not refused.stdout, refused
    with server.another("--host", "0.0.0.0", "--insecure") as open_server:
        assert httpx.get(f"http://127.0.0.1:{open_server.address[1]}/health").status_code == 200
    with server.another("--host", "0.0.0.0", "--api-key", "k") as keyed:
        url = f"http://127.0.0.1:{keyed.address[1]}"
        assert httpx.get(f"{url}/health").status_code == 200 and httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/v1/models", headers={"authorization": "Bearer k"}).status_code == 200


def test_a_port_that_is_taken_is_an_error(server: Server):
    """One line, no panic."""
    refused = refusal_of(server, "--port", str(server.address[1]))
    assert refused.returncode not in (0, 101) and len(refused.stderr.strip().splitlines()) == 1, refused


def test_other_sites_cannot_ask(server: Server):
    """A page of another site, whose browser sends text without asking first, gets nothing written, and learns what helps."""
    body = json.dumps({"messages": HELLO, "max_tokens": 2})
    for origin in ("https://example.org", "null", "http://localhost.example.org", "file://"):
        foreign = {"origin": origin, "content-type": "text/plain", "sec-fetch-site": "cross-site"}
        answer = httpx.post(f"{server.api}/chat/completions", content=body, headers=foreign, timeout=20)
        assert answer.status_code == 403 and "allowed origins" in answer.json()["error"]["message"], answer.text
        assert "access-control-allow-origin" not in answer.headers


def test_apps_can_ask(server: Server):
    """Those of this machine have origins that no web site can have; --allow-origin lets others in."""
    for origin in ("app://obsidian.md", "vscode-webview://x", "tauri://localhost", "chrome-extension://abc", "http://localhost:3000"):
        answer = httpx.get(f"{server.api}/models", headers={"origin": origin})
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == origin, origin
    with server.another("--allow-origin", "https://chat.example/", "--allow-host", "llm.example") as wide:
        answer = httpx.get(f"{wide.api}/models", headers={"origin": "https://chat.example", "host": "llm.example"})
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://chat.example"
        assert httpx.get(f"{wide.api}/models", headers={"origin": "https://evil.example"}).status_code == 403


def test_a_browser_may_ask_before_it_sends_a_key(server: Server):
    """CORS: the question needs no key, and its answer lets every page send one."""
    asked = {"origin": "https://chat.example", "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    with server.another("--api-key", "k") as keyed:
        answer = httpx.options(f"{keyed.api}/chat/completions", headers=asked)
        assert answer.status_code == 204 and answer.headers["access-control-allow-headers"] == "authorization,content-type"
        answer = httpx.get(f"{keyed.api}/models", headers={"origin": "https://chat.example", "authorization": "Bearer k"})
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "*", answer.headers
    refused = refusal_of(server, "--port", "0", "--allow-origin", "*")
    assert refused.returncode not in (0, 101) and "--api-key" in refused.stderr, refused
    refused = refusal_of(server, "--port", "0", "--allow-host", "http://llm.example")
    assert refused.returncode not in (0, 101) and "--allow-host http://llm.example: expected NAME" in refused.stderr, refused


def test_names_that_were_bent_here_get_nothing(server: Server):
    """DNS rebinding: to the browser, a page of that name may read the answers. Names that no site can have are answered."""
    for host in ("evil.example.org", "localhost.example.org", "evil.local.example"):
        answer = httpx.get(f"{server.api}/models", headers={"host": host})
        assert answer.status_code == 403 and "allowed host names" in answer.json()["error"]["message"], answer.text
    for host in ("host.docker.internal:8080", "raspberrypi.local", "my-pc"):
        assert httpx.get(f"{server.api}/models", headers={"host": host}).status_code == 200, host
        # A page of such a name may come from a hostile machine in the local network, so its origin
        # is refused.
        assert httpx.get(f"{server.api}/models", headers={"host": host, "origin": f"http://{host}"}).status_code == 403, host
