"""What a server is started with, and what it does not start with."""

import glob
import os
import ssl

import httpx

from operation import refusal_of
from serving import HELLO, Server, events


def pem(name: str) -> str:
    """A file of those with which the server's own tests encrypt."""
    return os.path.join(os.path.dirname(__file__), "../../crates/server/tests/serve/tls", name)


def test_encrypted_connections(server: Server):
    """With a certificate and its key; anything else is an error of one line at the start."""
    cert, key = pem("cert.pem"), pem("key.pem")
    with server.another("--tls-cert", cert, "--tls-key", key) as safe:
        assert safe.place.startswith("https://127.0.0.1:")
        with httpx.Client(verify=ssl.create_default_context(cafile=cert), timeout=30) as client:
            assert client.get(f"{safe.place}/health").status_code == 200
            answer = client.post(f"{safe.place}/v1/chat/completions", json={"messages": HELLO, "max_tokens": 3, "stream": True})
            assert events(answer)[-1] == "[DONE]"
    for code, flags in ((1, (cert, pem("other_key.pem"))), (1, (key, key)), (1, (cert, "/nowhere")), (2, (cert, None))):
        files = [part for part in zip(("--tls-cert", "--tls-key"), flags) if part[1]]
        refused = refusal_of(server, "--port", "0", *(word for part in files for word in part))
        assert refused.returncode == code and not refused.stdout, refused
        assert code == 2 or len(refused.stderr.strip().splitlines()) == 1, refused


def test_a_machine_that_is_kept_cool(server: Server):
    """Tells how it is; one that does not say how hot it is, is an error at the start."""
    if glob.glob("/sys/class/thermal/thermal_zone*/temp"):
        with server.another("--cool", "60") as cool:
            assert 0.25 <= cool.count("duty") <= 1 and cool.count("temperature_celsius") < 200
    else:
        refused = refusal_of(server, "--port", "0", "--cool", "60")
        assert refused.returncode == 1 and "thermal" in refused.stderr, refused
