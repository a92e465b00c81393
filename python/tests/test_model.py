"""`Model`, `Session` and the iterators, and what `Llama` refuses."""

from __future__ import annotations

import _thread
import array
import asyncio
import gc
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
import warnings

import pytest
from conftest import EMBEDDER, HERE, IS_DEFAULT, MODEL

atta = pytest.importorskip("atta")

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0}
MESSAGES = [{"role": "user", "content": "Tell me a story."}]


@pytest.fixture(scope="module")
def model():
    with atta.Model(MODEL, ctx=256, threads=1, parallel=2, name="stories") as model:
        yield model


@pytest.fixture()
def session(model):
    with model.session() as session:
        yield session


def text(model, n=16):
    with model.session() as session:
        return "".join(session.generate(PROMPT, max_tokens=n, **GREEDY).texts())


# Models.


def test_a_model_has_a_name_and_numbers(model):
    assert model.name == "stories" and model.n_vocab == model.number("n_vocab")
    if IS_DEFAULT:
        assert model.number("token_pad") is None


def test_a_model_has_metadata(model):
    assert model.metadata["general.architecture"] == "llama"
    assert model.text("general.architecture") == "llama"
    assert model.text("no.such.key") is None


def test_an_unknown_number_is_an_error(model):
    with pytest.raises(atta.InvalidError):
        model.number("n_nothing")


def test_a_missing_file_is_an_error():
    with pytest.raises(atta.ModelError, match="nowhere"):
        atta.Model("/nowhere.gguf")


def test_an_option_is_checked():
    with pytest.raises(atta.InvalidError, match="f8"):
        atta.Model(MODEL, kv="f8")
    with pytest.raises(atta.InvalidError, match="ctx"):
        atta.Model(MODEL, ctx=-1)
    with pytest.raises(TypeError):
        atta.Model(MODEL, size=1)


def test_a_budget_is_kept():
    with pytest.raises(MemoryError):
        atta.Model(MODEL, weights="resident", ram_budget=1000)


def test_a_closed_model_is_an_error():
    model = atta.Model(MODEL, ctx=32)
    model.close()
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.tokenize("a")


def test_a_path_may_be_an_object(model):
    with atta.Model(HERE.parents[1] / "tests/golden/stories.gguf", ctx=32) as other:
        assert other.n_vocab > 0


def test_tokens_become_text_again(model):
    ids = model.tokenize(PROMPT)
    assert model.detokenize(ids).decode() == PROMPT
    if IS_DEFAULT:
        assert model.tokenize(PROMPT, bos=True) == [model.number("token_bos"), *ids]
        assert model.detokenize(ids, goes_on=True).decode() == " " + PROMPT


@pytest.mark.parametrize("kind", ["list", "tuple", "array", "numpy", "numpy64"])
def test_tokens_may_come_in_many_types(model, kind):
    ids = model.tokenize(PROMPT)
    if kind.startswith("numpy"):
        numpy = pytest.importorskip("numpy")
        given = numpy.array(ids, dtype=numpy.uint32 if kind == "numpy" else numpy.int64)
    else:
        given = {"list": list, "tuple": tuple, "array": lambda ids: array.array("I", ids)}[kind](ids)
    assert model.detokenize(given).decode() == PROMPT


def test_a_negative_token_is_an_error(model):
    with pytest.raises(atta.InvalidError):
        model.detokenize([-1])


# Sessions.


def test_a_session_generates_events(session):
    generation = session.generate(PROMPT, max_tokens=3, **GREEDY)
    events = list(generation)
    assert [event.kind for event in events][0] == "prompt"
    assert events[-1].kind == "done"
    tokens = [event.token for event in events if event.kind == "token"]
    assert len(tokens) == 3 and session.tokens[-3:] == tokens
    assert generation.summary["finish_reason"] == "length"


def test_a_text_goes_on(model, session):
    first = "".join(session.generate(PROMPT, max_tokens=6, **GREEDY).texts())
    second = "".join(session.generate(max_tokens=10, **GREEDY).texts())
    assert first + second == text(model)


def test_an_iterator_that_has_ended_stays_at_its_end(session):
    generation = session.generate(PROMPT, max_tokens=1)
    assert list(generation) and list(generation) == []


def test_a_generation_may_be_left(session):
    with session.generate(PROMPT, max_tokens=50) as generation:
        next(generation)
    session.append([5])


def test_a_generation_that_is_forgotten_gives_its_session_back(session):
    generation = session.generate(PROMPT, max_tokens=50)
    next(generation)
    del generation
    gc.collect()
    session.append([5])


def test_a_session_with_a_generation_is_busy(session):
    generation = session.generate(PROMPT, max_tokens=5)
    with pytest.raises(atta.BusyError):
        session.append([5])
    generation.close()


def test_a_generation_is_cancelled_from_another_thread(session):
    generation = session.generate(PROMPT)
    next(generation)
    threading.Thread(target=generation.cancel).start()
    list(generation)
    assert generation.summary["finish_reason"] in ("interrupted", "stop", "length")


def test_an_unknown_field_is_an_error(session):
    with pytest.raises(atta.RequestError, match="temprature"):
        session.generate(PROMPT, temprature=0)


def test_a_grammar_is_kept_to(session):
    found = "".join(session.generate(PROMPT, grammar='root ::= "yes" | "no"').texts())
    assert found in ("yes", "no")


def test_log_probabilities_come_with_tokens(session):
    generation = session.generate(PROMPT, max_tokens=1, n_probs=2, **GREEDY)
    found = [event.text for event in generation if event.kind == "token"]
    assert '"logprob"' in found[0]


def test_logits_are_an_array_without_a_copy(session, model):
    numpy = pytest.importorskip("numpy")
    session.append(model.tokenize(PROMPT, bos=True))
    logits = session.logits
    assert isinstance(logits, numpy.ndarray) and logits.dtype == numpy.float32
    assert logits.shape == (model.n_vocab,) and logits.base is not None
    kept = logits.copy()
    session.append([5])
    gc.collect()
    assert (logits == kept).all(), "the array keeps its memory"


def test_logits_of_each_token_have_a_row(session, model):
    pytest.importorskip("numpy")
    ids = model.tokenize(PROMPT, bos=True)
    rows = session.append_all(ids)
    assert rows.shape == (len(ids), model.n_vocab)
    assert (rows[-1] == session.logits).all()


def test_there_are_no_logits_before_a_token(session):
    with pytest.raises(LookupError):
        session.logits


def test_a_text_is_truncated(session, model):
    ids = model.tokenize(PROMPT, bos=True)
    session.append(ids)
    assert session.truncate(2) == 2 and session.tokens == ids[:2]


def test_a_context_that_is_full_is_an_error(model):
    with model.session(ctx=8) as session:
        with pytest.raises(atta.ContextError, match="ctx"):
            session.append([5] * 9)


def test_a_session_has_no_options_of_models(model):
    with pytest.raises(TypeError):
        model.session(threads=2)


def test_a_text_is_saved_and_loaded(model, session):
    session.append(model.tokenize(PROMPT, bos=True))
    state = session.save()
    with model.session() as other:
        other.load(state)
        assert other.tokens == session.tokens
        with pytest.raises(atta.AttaError):
            other.load(state[:-1])


def test_a_sampler_chooses_the_best(session, model):
    numpy = pytest.importorskip("numpy")
    session.append(model.tokenize(PROMPT, bos=True))
    sampler = model.sampler(temperature=0)
    assert sampler.sample(session) == int(session.logits.argmax())
    assert sampler.choose(numpy.eye(model.n_vocab, dtype=numpy.float32)[9]) == 9
    with pytest.raises(atta.InvalidError):
        sampler.choose([1.0, 2.0])


# Requests.


def test_a_model_answers_a_conversation(model):
    found = model.chat(MESSAGES, max_tokens=4, **GREEDY)
    assert found["object"] == "chat.completion" and found["model"] == "stories"


def test_chunks_of_a_conversation_are_its_answer(model):
    chunks = model.chat_stream(MESSAGES, max_tokens=4, **GREEDY)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    found = "".join(delta.get("content") or "" for delta in deltas)
    whole = model.chat(MESSAGES, max_tokens=4, **GREEDY)["choices"][0]["message"]["content"]
    assert found.strip() == whole.strip()


def test_all_paths_of_the_server_are_there(model):
    found = model.request("/tokenize", {"content": PROMPT})
    assert found["tokens"] == model.tokenize(PROMPT) or found["tokens"][1:] == model.tokenize(PROMPT)


@pytest.mark.parametrize("path", ["/api/generate", "/completion", "/v1/messages", "/v1/responses"])
def test_streams_of_other_interfaces_are_parted(model, path):
    prompts = {"/v1/messages": {"messages": MESSAGES}, "/v1/responses": {"input": PROMPT}}
    limits = {"/api/generate": "options", "/v1/responses": "max_output_tokens"}
    limit = {limits.get(path, "max_tokens"): {"num_predict": 4} if "api" in path else 4}
    body = {**prompts.get(path, {"prompt": PROMPT}), **limit, "stream": True, "model": "stories"}
    found = list(model.stream(path, body))
    assert len(found) > 3 and all(isinstance(event, dict) for event in found)


def test_a_bad_request_is_an_error(model):
    with pytest.raises(atta.RequestError):
        model.chat([{"role": "stranger", "content": "a"}])
    with pytest.raises(atta.RequestError):
        model.request("/nowhere", {})
    with pytest.raises(atta.InvalidError):
        model.request("/v1/completions", {"prompt": object()})


def test_a_field_without_effect_is_a_warning(model):
    with pytest.warns(UserWarning, match="sed"):
        list(model.chat_stream(MESSAGES, max_tokens=2, sed=1))


def test_vectors_have_length_1():
    with atta.Model(EMBEDDER) as model:
        vectors = model.embed(["Hello world", "Hello"])
        assert len(vectors) == 2 and len(vectors[0]) == model.number("d_vector")
        assert abs(sum(number * number for number in vectors[0]) - 1) < 1e-3


def test_requests_run_beside_each_other(model):
    texts = []

    def ask():
        found = model.request("/v1/completions", {"prompt": PROMPT, "max_tokens": 16, **GREEDY})
        texts.append(found["choices"][0]["text"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [text(model)] * 4


def test_the_same_text_comes_from_a_session_and_a_request(model):
    found = model.request("/v1/completions", {"prompt": PROMPT, "max_tokens": 16, **GREEDY})
    assert found["choices"][0]["text"] == text(model)


# asyncio.


def test_a_stream_is_an_asynchronous_iterator(model):
    async def collect():
        chunks = model.chat_stream(MESSAGES, max_tokens=4, **GREEDY)
        return [chunk async for chunk in chunks]

    assert len(asyncio.run(collect())) > 2


def test_a_session_generates_asynchronously(session, model):
    async def collect():
        events = session.generate(PROMPT, max_tokens=16, **GREEDY)
        return "".join([event.text async for event in events if event.kind == "text"])

    assert asyncio.run(collect()) == text(model)


def test_cancelling_a_task_cancels_its_request(model):
    async def leave():
        endless = {"prompt": PROMPT, "max_tokens": 100000}
        task = asyncio.ensure_future(model.arequest("/v1/completions", endless))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert text(model)


# The process.


def test_ctrl_c_ends_a_generation(session):
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            for _ in session.generate(PROMPT, max_tokens=100):
                pass
            session.truncate(0)
    session.truncate(0)
    session.append([5])


def test_ctrl_c_ends_a_request_that_waits(model):
    body = {"prompt": PROMPT, "max_tokens": 200, "n": 2}
    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        while time.monotonic() < start + 30:
            model.request("/v1/completions", body)
    assert text(model)


def test_other_threads_run_while_a_model_computes(session):
    n_ticks = [0]
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            n_ticks[0] += 1
            time.sleep(0.0001)

    thread = threading.Thread(target=tick)
    thread.start()
    list(session.generate(PROMPT, max_tokens=32))
    stop.set()
    thread.join()
    assert n_ticks[0] > 1


def test_the_package_works_without_numpy():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import atta\n"
        f"with atta.Model({MODEL!r}, ctx=32) as model, model.session() as session:\n"
        "    session.append([1, 5]); print(len(session.logits) == model.n_vocab)\n"
    )
    folder = os.path.dirname(os.path.dirname(atta.__file__))
    environment = {**os.environ, "PYTHONPATH": folder}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert found.stdout.strip() == b"True", found.stderr


def test_a_library_of_another_abi_is_refused(monkeypatch):
    from atta import _native

    monkeypatch.setattr(_native, "ABI", 99)
    with pytest.raises(ImportError, match="ABI 1, expected 99"):
        _native._load()


# Phones.


@pytest.mark.parametrize("to_file", [False, True])
def test_a_session_is_suspended_and_goes_on(model, session, tmp_path, to_file):
    path = tmp_path / "state" if to_file else None
    expected = text(model)
    generation = session.generate(PROMPT, max_tokens=16, **GREEDY)
    pieces = [event.text for _, event in zip(range(9), generation) if event.kind == "text"]
    used = model.number("ram_used")
    generation.suspend(path)
    assert model.number("ram_used") < used
    with pytest.raises(atta.SuspendedError):
        next(generation)
    generation.resume()
    assert "".join(pieces) + "".join(generation.texts()) == expected
    session.suspend(path)
    with pytest.raises(atta.SuspendedError):
        session.append([1])
    session.resume()
    session.append([1])


def test_a_later_process_loads_a_suspended_session(model, tmp_path):
    with model.session() as session:
        session.append(model.tokenize(PROMPT))
        session.suspend(tmp_path / "state")
    with model.session() as later:
        later.load((tmp_path / "state").read_bytes())
        assert later.tokens == model.tokenize(PROMPT)


def test_requests_give_their_memory_back(model):
    before = model.chat(MESSAGES, max_tokens=4, **GREEDY)["choices"]
    used = model.number("ram_used")
    model.suspend()
    assert model.number("ram_used") < used
    assert model.chat(MESSAGES, max_tokens=4, **GREEDY)["choices"] == before


def test_heat_pauses_and_changes_no_text(model, session):
    expected = text(model)
    model.heat = atta.Heat.CRITICAL
    assert text(model) == expected
    model.heat = atta.Heat.EMERGENCY
    cooler = threading.Timer(0.2, setattr, (model, "heat", atta.Heat.NOMINAL))
    cooler.start()
    assert "".join(session.generate(PROMPT, max_tokens=16, **GREEDY).texts()) == expected
    assert model.heat is atta.Heat.NOMINAL
    with pytest.raises(atta.InvalidError):
        model.heat = 4


# Adapters.


def write_adapter(path, d_model, n_layers):
    """A LoRA adapter of rank 1 for the queries, as a GGUF file."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    head = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in pairs.items())
    head += text("adapter.lora.alpha") + struct.pack("<If", 6, 1.0)
    infos, data = b"", b""
    for layer in range(n_layers):
        for end, dims in (("lora_a", (d_model, 1)), ("lora_b", (1, d_model))):
            infos += text(f"blk.{layer}.attn_q.weight.{end}")
            infos += struct.pack("<IQQIQ", 2, *dims, 0, len(data))
            data += struct.pack("<f", 0.5) * d_model
            data += bytes(-len(data) % 32)
    start = b"GGUF" + struct.pack("<IQQ", 3, 2 * n_layers, len(pairs) + 1) + head + infos
    path.write_bytes(start + bytes(-len(start) % 32) + data)


@pytest.mark.skipif(not IS_DEFAULT, reason="an adapter for another model")
def test_adapters_change_texts_that_have_them(model, tmp_path):
    path, expected = tmp_path / "tale.gguf", text(model)
    sizes = (model.metadata[f"llama.{name}"] for name in ("embedding_length", "block_count"))
    write_adapter(path, *sizes)
    lora = [{"path": path, "name": "tale", "scale": 0}]
    with atta.Model(MODEL, ctx=256, threads=1, lora=lora) as adapted:
        assert text(adapted) == expected
        with adapted.session() as session:
            session.set_lora([{"name": "tale"}])
            found = "".join(session.generate(PROMPT, max_tokens=16, **GREEDY).texts())
            assert found != expected
            with pytest.raises(atta.RequestError, match="tale"):
                session.set_lora([{"name": "song"}])
    with atta.Llama(MODEL, n_ctx=64, lora_path=str(path)) as llama:
        assert llama(PROMPT, max_tokens=16, temperature=0.0)["choices"][0]["text"] != expected
    with pytest.raises(atta.ModelError, match="nowhere"):
        atta.Llama(MODEL, n_ctx=64, lora_path="/nowhere")


# What `Llama` refuses or ignores.


@pytest.mark.parametrize(
    "arguments",
    [{"rope_freq_base": 1e6}, {"lora_base": "a"}, {"vocab_only": True}, {"chat_format": "vicuna"}],
)
def test_what_would_change_the_text_is_refused(arguments):
    with pytest.raises(NotImplementedError):
        atta.Llama(MODEL, **arguments)


def test_an_unknown_argument_is_a_type_error():
    with pytest.raises(TypeError, match="n_gpu_layer"):
        atta.Llama(MODEL, n_gpu_layer=1)


def test_what_changes_only_the_speed_warns_once():
    with pytest.warns(UserWarning, match="n_gpu_layers"):
        atta.Llama(MODEL, n_ctx=32, n_gpu_layers=-1).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        atta.Llama(MODEL, n_ctx=32, n_gpu_layers=-1).close()


def test_a_completion_takes_functions_of_the_program():
    numpy = pytest.importorskip("numpy")
    with atta.Llama(MODEL, n_ctx=128, seed=1) as llama:
        plain = llama(PROMPT, max_tokens=16, temperature=0.0)
        processors = atta.LogitsProcessorList([lambda ids, scores: scores])
        found = llama(PROMPT, max_tokens=16, temperature=0.0, logits_processor=processors)
        assert found["choices"] == plain["choices"] and found["usage"] == plain["usage"]
        stops = atta.StoppingCriteriaList([lambda ids, logits: len(ids) > 8])
        assert llama(PROMPT, stopping_criteria=stops)["choices"][0]["finish_reason"] == "stop"
    del numpy


def test_langchain_loads_a_model_with_its_defaults():
    # langchain_community/llms/llamacpp.py gives these for every model.
    with atta.Llama(
        MODEL, n_ctx=64, n_parts=-1, seed=-1, f16_kv=True, logits_all=False, vocab_only=False,
        use_mlock=False, n_threads=None, n_batch=8, use_mmap=True, last_n_tokens_size=64,
        rope_freq_scale=1.0, rope_freq_base=10000.0, verbose=True,
    ) as llama:  # fmt: skip
        found = llama(
            prompt=PROMPT, suffix=None, max_tokens=4, temperature=0.8, top_p=0.95, logprobs=None,
            echo=False, stop=[], repeat_penalty=1.1, top_k=40,
        )  # fmt: skip
        assert found["choices"][0]["text"] and llama.context_params.n_ctx == 64


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(atta.ContextError("too long")))
    assert isinstance(error, ValueError) and str(error) == "too long"
