"""What the tests share. `LLAMA_IMPLEMENTATION=llama_cpp` runs those of `Llama` against
llama-cpp-python on the same file; `UPDATE_GOLDEN=1` then writes what it does to `golden.json`."""

from __future__ import annotations

import importlib
import json
import os
import pathlib

import pytest

HERE = pathlib.Path(__file__).parent
IMPLEMENTATION = os.environ.get("LLAMA_IMPLEMENTATION", "atta")
MODEL = os.environ.get("ATTA_TEST_MODEL", str(HERE.parents[1] / "tests/golden/stories.gguf"))
EMBEDDER = str(HERE.parents[1] / "tests/golden/models/bert.gguf")
GOLDEN = HERE / "golden.json"
IS_ATTA = IMPLEMENTATION == "atta"
IS_DEFAULT = "ATTA_TEST_MODEL" not in os.environ


@pytest.fixture(scope="session")
def module():
    """The package with `Llama`."""
    return importlib.import_module(IMPLEMENTATION)


@pytest.fixture(scope="session")
def llama(module):
    """A model for tests that leave it as it is."""
    return module.Llama(
        MODEL, n_ctx=256, n_batch=64, n_threads=1, seed=7, logits_all=True, verbose=False
    )


def shape(value):
    """The keys and types of a value."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


@pytest.fixture()
def golden(request):
    """Compares a value with that of llama-cpp-python, by the name of the test."""

    def compare(value):
        # As JSON has it.
        value = json.loads(json.dumps(value))
        known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
        name = request.node.name
        if os.environ.get("UPDATE_GOLDEN") and not IS_ATTA and IS_DEFAULT:
            known[name] = value
            text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False)
            GOLDEN.write_text(text + "\n")
        if IS_DEFAULT:
            assert value == known[name]

    return compare


def pytest_collection_modifyitems(items):
    """Only the tests of `Llama` apply to another package."""
    for item in items:
        if not IS_ATTA and item.fspath.basename != "test_llama.py":
            item.add_marker(pytest.mark.skip(reason=f"not for {IMPLEMENTATION}"))
