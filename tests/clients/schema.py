"""Has Schemathesis ask `atta serve` for what its OpenAPI document says: python schema.py --atta PATH [--examples N].

Needs `pip install -r schema.txt`. Requests that the document allows, and such that it does not; no answer may be a mistake of
the server's, or have a status or a form that the document does not know. It takes
about a minute; more `--examples` or another `--seed` may find more. Exits 1 on failure. The context is short, so that every
answer ends soon. Schemathesis loads this file too, as its hooks.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import httpx
import schemathesis

from serving import Server

REQUEST_S = 60
# What a request may say is in question, not how long the answer is.
FLAGS = ("-c", "128", "--parallel", "4")
# Not that everything which the document allows has an answer: a prompt may be too long. Nor that everything else is
# refused: clients send fields that mean nothing here, and those are left out with a remark. 501 is what a model cannot do,
# and no mistake.
CHECKS = [
    "no_mistake_of_the_server",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
]


@schemathesis.hook
def before_load_schema(_context, raw_schema):
    """Leaves out what hardly anything at random can be right about: names of models and tools, numbers of tokens."""
    name, schemas = os.environ["ATTA_MODEL"], raw_schema["components"]["schemas"]
    schemas["TokenId"]["maximum"] = int(os.environ["ATTA_TOKENS"]) - 1
    schemas["ModelName"] = {"enum": [name, None]}
    # Numbers are f32; 2^-150 is the largest value that rounds to 0.
    schemas["RepeatPenalty"]["exclusiveMinimum"] = 2**-150
    for choice in ("ToolChoice", "FlatToolChoice", "CustomToolChoice"):
        schemas[choice] = {"type": "null"}
    schemas["Thinking"] = {"type": "null"}
    for schema in (schema for request, schema in schemas.items() if request.endswith("Request")):
        if schema["properties"]["model"] == {"type": "string"}:
            schema["properties"]["model"] = {"const": name}
    for operation in (item["post"] for item in raw_schema["paths"].values() if "post" in item):
        example = operation["requestBody"]["content"]["application/json"]["example"]
        if "model" in example:
            example["model"] = name
        if "text/event-stream" in operation["responses"].get("200", {}).get("content", {}):
            # Requests that differ from the example in one field are about half of all; the others seldom have it.
            example["stream"] = True


@schemathesis.check
def no_mistake_of_the_server(_context, response, _case):
    assert response.status_code != 500, response.text


@schemathesis.deserializer("application/x-ndjson")
def lines(_context, response):
    return [json.loads(line) for line in response.content.splitlines()]


def run(server: Server, examples: int, seed: int) -> int:
    command = [
        os.path.join(os.path.dirname(sys.executable), "schemathesis"),
        "run",
        f"{server.place}/openapi.json",
        "--phases=examples,coverage,fuzzing",
        f"--checks={','.join(CHECKS)}",
        f"--max-examples={examples}",
        f"--seed={seed}",
        "--generation-database=none",
        f"--request-timeout={REQUEST_S}",
        "--suppress-health-check=all",
        "--warnings=off",
        "--continue-on-failure",
        "--no-color",
    ]
    props = httpx.get(f"{server.place}/props").json()
    env = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "schema",
        "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)),
        "ATTA_MODEL": props["model"],
        "ATTA_TOKENS": str(props["n_vocab"]),
    }
    with tempfile.TemporaryDirectory() as place:
        return subprocess.run(command, cwd=place, env=env, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atta", required=True, help="the program")
    parser.add_argument("--examples", type=int, default=20, help="requests at random for each path")
    parser.add_argument("--seed", type=int, default=1, help="other requests with each")
    args = parser.parse_args()
    with Server(os.path.abspath(args.atta), *FLAGS) as server:
        code = run(server, args.examples, args.seed)
        assert server.process.poll() is None, "the server has ended"
        return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
