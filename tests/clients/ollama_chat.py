"""Ollama's client for Python: chat, generate, what models there are, and errors."""

import enum
import json
from pathlib import Path

import httpx
import ollama
from pydantic import BaseModel, Field

from serving import HELLO, LONG, Server, is_json_object, refused, wait_idle, wait_until

TOOLS = Path(__file__).parents[2] / "examples/home/tools.json"
LONG_FORMAT = LONG["json_schema"]["schema"]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Wheel(BaseModel):
    spokes: int = Field(ge=0, le=99)
    colour: Colour


class Cart(BaseModel):
    name: str = Field(max_length=12)
    wheels: list[Wheel] = Field(min_length=1, max_length=2)


def client(server: Server, **options) -> ollama.Client:
    return ollama.Client(host=server.place, timeout=60, **options)


def settings(fields: dict) -> dict:
    """At most 24 tokens with a seed, if nothing else is asked for."""
    return {**fields, "options": {"num_predict": 24, "seed": 1, **fields.get("options", {})}}


def chat(server: Server, messages=HELLO, **fields):
    return client(server).chat(server.model(), messages, **settings(fields))


def generate(server: Server, prompt="Hello!", **fields):
    return client(server).generate(server.model(), prompt, **settings(fields))


def home_tools() -> list[dict]:
    return [{"type": "function", "function": tool} for tool in json.loads(TOOLS.read_text())]


def check_numbers(answer) -> None:
    assert answer.done and answer.done_reason in ("stop", "length"), answer
    assert answer.prompt_eval_count > 0 and 0 < answer.eval_count <= 24, answer
    times = [answer.load_duration, answer.prompt_eval_duration, answer.eval_duration]
    assert all(time >= 0 for time in times) and sum(times) <= answer.total_duration < 60e9, answer


def test_chat_has_the_fields_of_the_interface(server: Server):
    """Everything that a client may look at is there."""
    answer = chat(server)
    assert answer.model == server.model() and answer.created_at.endswith("Z") and "T" in answer.created_at, answer
    assert answer.message.role == "assistant" and answer.message.content and not answer.message.tool_calls, answer
    check_numbers(answer)


def test_a_streamed_chat_is_the_whole_one(server: Server):
    """Only the last line is done, and has the numbers."""
    whole = chat(server)
    lines = list(chat(server, stream=True))
    assert "".join(line.message.content for line in lines) == whole.message.content, (lines, whole)
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True] and len(lines) > 2, lines
    assert all(line.eval_count is None for line in lines[:-1]), lines
    assert lines[-1].eval_count == whole.eval_count and lines[-1].done_reason == whole.done_reason
    check_numbers(lines[-1])


def test_answers_are_lines_unless_that_is_refused(server: Server):
    """The interface's default, unlike others."""
    fields = {"model": server.model(), "messages": HELLO, "options": {"num_predict": 4}}
    lines = server.post("/api/chat", **fields)
    assert lines.headers["content-type"] == "application/x-ndjson", lines.headers
    assert len([json.loads(line) for line in lines.text.splitlines()]) > 1, lines.text
    whole = server.post("/api/chat", **fields, stream=False)
    assert whole.headers["content-type"] == "application/json" and whole.json()["done"], whole.text


def test_generate_answers_a_prompt(server: Server):
    """As chat answers a message; a stream is the same."""
    answer = generate(server)
    assert answer.response == chat(server).message.content, answer
    check_numbers(answer)
    lines = list(generate(server, stream=True))
    assert "".join(line.response for line in lines) == answer.response and lines[-1].context == answer.context, lines


def test_a_system_text_is_read(server: Server):
    """It stands in the prompt, as in chat."""
    system = "You are a parrot."
    answer = generate(server, system=system)
    messages = [{"role": "system", "content": system}, *HELLO]
    assert answer.prompt_eval_count == chat(server, messages).prompt_eval_count > generate(server).prompt_eval_count


def test_raw_goes_on_with_a_text(server: Server):
    """Without a template, as OpenAI's completions do."""
    raw = generate(server, "Once upon a time", raw=True, options={"temperature": 0})
    fields = {"model": server.model(), "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    assert raw.response == server.client().completions.create(**fields).choices[0].text, raw
    assert raw.context is None, raw
    with refused(ollama.ResponseError, status_code=400):
        generate(server, raw=True, system="You are a parrot.")


def test_a_context_goes_on(server: Server):
    """What was read and written is read before the new prompt, and is not computed again."""
    first = generate(server, "My name is Ada.")
    assert first.prompt_eval_count < len(first.context), first
    second = generate(server, "Who am I?", context=first.context)
    alone = generate(server, "Who am I?")
    n_before = second.prompt_eval_count - alone.prompt_eval_count
    assert len(first.context) - 1 <= n_before <= len(first.context), (n_before, len(first.context))
    assert second.context[: len(first.context)] == first.context, second
    with refused(ollama.ResponseError, status_code=400):
        generate(server, context=[99999999])


def test_a_request_without_words_loads_the_model(server: Server):
    """And says that it has done nothing else."""
    loaded = client(server).generate(server.model())
    assert loaded.done and loaded.done_reason == "load" and loaded.response == "", loaded
    (line,) = client(server).chat(server.model(), [], stream=True)
    assert line.done and line.done_reason == "load" and line.message.content == "", line


def test_a_tool_is_called(server: Server):
    """Arguments are an object; a stream has the same call."""
    said = [{"role": "user", "content": "turn on the kitchen light"}]
    fields = {"tools": home_tools(), "options": {"num_predict": 100, "temperature": 0}}
    answer = server.post("/api/chat", model=server.model(), messages=said, stream=False, **fields).json()
    (call,) = answer["message"]["tool_calls"]
    assert call["function"] == {"index": 0, "name": "set_light", "arguments": {"room": "kitchen", "on": True}}, call
    assert answer["done_reason"] == "stop" and not answer["message"]["content"].strip(), answer
    lines = list(chat(server, said, stream=True, **fields))
    assert [call.function.name for line in lines for call in line.message.tool_calls or []] == ["set_light"], lines


def test_results_of_tools_are_taken(server: Server):
    """The client's message, which has no ids, with its result by the name of the tool."""
    fields = {"tools": home_tools(), "options": {"num_predict": 100, "temperature": 0}}
    said = [{"role": "user", "content": "turn on the kitchen light"}]
    message = chat(server, said, **fields).message
    for name in ({"tool_name": "set_light"}, {"name": "set_light"}, {}):
        answer = chat(server, [*said, message, {"role": "tool", "content": '{"ok": true}', **name}], **fields)
        assert answer.message.content and not answer.message.tool_calls, answer


def test_a_python_function_is_a_tool(server: Server):
    """The client makes the definition of it."""

    def set_light(room: str, on: bool) -> str:
        """Switch a light.

        Args:
            room: where it is
            on: whether it is to be on
        """
        return f"{room} {on}"

    answer = chat(server, [{"role": "user", "content": "turn on the kitchen light"}], tools=[set_light], options={"num_predict": 100})
    for call in answer.message.tool_calls or []:
        assert set_light(**call.function.arguments), call


def test_json_is_an_object(server: Server):
    """Complete even where it is cut."""
    for length in (5, 200):
        answer = chat(server, format="json", options={"num_predict": length})
        assert is_json_object(answer.message.content), answer


def test_a_schema_is_kept_to(server: Server):
    """A pydantic model's; in chat and generate."""
    schema, options = Cart.model_json_schema(), {"num_predict": 400}
    Cart.model_validate_json(chat(server, format=schema, options=options).message.content)
    Cart.model_validate_json(generate(server, format=schema, options=options).response)
    with refused(ollama.ResponseError, status_code=400):
        chat(server, format={"type": "fish"})
    assert chat(server, format=schema, tools=home_tools()).done


def test_options_are_kept_to(server: Server):
    """A length, a stop text, a seed."""
    short = chat(server, format=LONG_FORMAT, options={"num_predict": 3})
    assert short.done_reason == "length" and short.eval_count == 3, short
    whole = chat(server, options={"temperature": 0}).message.content
    stop = whole[len(whole) // 2 :][:3]
    for given in ([stop], ["never said, that one", stop]):
        cut = chat(server, options={"temperature": 0, "stop": given})
        assert cut.message.content == whole.split(stop)[0] and cut.done_reason == "stop", (whole, cut)
    digits = {"type": "array", "items": {"enum": list(range(10))}, "minItems": 24, "maxItems": 24}
    texts = [chat(server, format=digits, options={"seed": seed, "temperature": 2, "num_predict": 400}).message.content for seed in (5, 5, 6, -1, -1)]
    assert texts[0] == texts[1] and len(set(texts)) == 4, texts


def test_logprobs_spell_the_content(server: Server):
    """In one piece and in lines, with alternatives in order."""
    fields = {"logprobs": True, "top_logprobs": 3, "options": {"temperature": 0}}
    whole = chat(server, **fields)
    assert "".join(entry.token for entry in whole.logprobs) == whole.message.content, whole
    for entry in whole.logprobs:
        best = [one.logprob for one in entry.top_logprobs]
        assert len(best) == 3 and best == sorted(best, reverse=True) and entry.logprob == best[0], entry
    lines = list(generate(server, stream=True, **fields))
    assert [entry.token for line in lines for entry in line.logprobs or []] == [entry.token for entry in whole.logprobs]


def test_models_are_listed(server: Server):
    """With the details of a loaded model."""
    (model,) = client(server).list().models
    assert model.model == server.model() and model.size > 1000 and model.modified_at, model
    details = model.details
    assert details.format == "gguf" and details.family and details.parameter_size[-1] in "KMB" and details.quantization_level, details


def test_a_model_is_shown(server: Server):
    """Its template, its numbers, and no path of any file."""
    shown = client(server).show(server.model())
    assert "completion" in shown.capabilities and "tools" in shown.capabilities, shown
    assert shown.template and shown.details.format == "gguf", shown
    family = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{family}.block_count"] > 0 and shown.modelinfo["general.parameter_count"] > 1000, shown.modelinfo
    assert ".gguf" not in server.post("/api/show", model=server.model()).text
    with refused(ollama.ResponseError, status_code=404):
        client(server).show("gpt-0")


def test_loaded_models_are_told(server: Server):
    """How much they take, and until when."""
    (model,) = client(server).ps().models
    assert model.model == server.model() and model.size > 1000 and model.size_vram == 0 and model.context_length == 4096, model
    assert model.expires_at.year == 9999, model


def test_keep_alive_is_kept_to(server: Server):
    """Until then and no longer; the next request loads the model again."""
    with server.another("--idle-unload", "600") as other:
        name, mine = other.model(), client(other)
        mine.generate(name, keep_alive="5m")
        (model,) = mine.ps().models
        assert 250 < (model.expires_at - model.expires_at.now(model.expires_at.tzinfo)).total_seconds() <= 300, model
        mine.chat(name, HELLO, options={"num_predict": 2}, keep_alive=-1)
        assert mine.ps().models[0].expires_at.year == 9999
        assert mine.generate(name, keep_alive=0).done_reason == "unload"
        wait_until(lambda: not mine.ps().models, "the model is still there")
        assert mine.list().models[0].size is None and mine.show(name).capabilities
        assert mine.generate(name, "Hello!", options={"num_predict": 2}).load_duration > 0
        with refused(ollama.ResponseError, status_code=400):
            mine.generate(name, keep_alive="soon")


def test_latest_is_the_same_model(server: Server):
    """Other tags are other models."""
    assert client(server).chat(f"{server.model()}:latest", HELLO, options={"num_predict": 2}).done
    with refused(ollama.ResponseError, status_code=404, error=f'model "{server.model()}:7b" not found'):
        client(server).chat(f"{server.model()}:7b", HELLO)


def test_the_server_is_found(server: Server):
    """By the probes of clients."""
    assert httpx.head(server.place).status_code == 200
    version = httpx.get(f"{server.place}/api/version").json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4), version


def test_what_is_not_supported_is_refused_by_name(server: Server):
    """Fields and options that would change the result; null is as good as nothing."""
    wrong = [("keep_alive", "soon"), ("think", "deeply"), ("format", "xml")]
    wrong += [("options", {"mirostat": 1}), ("options", {"tfs_z": 0.5}), ("options", {"num_predict": -3}), ("options", {"temperature": -1})]
    both = [("/api/chat", name, value) for name, value in wrong] + [("/api/generate", name, value) for name, value in wrong]
    both += [("/api/generate", "template", "x"), ("/api/generate", "images", ["aGk="])]
    both += [("/api/chat", "messages", [{**HELLO[0], "images": ["aGk="]}])]
    missed = []
    for path, name, value in both:
        words = {"/api/chat": {"messages": HELLO}, "/api/generate": {"prompt": "Hello!"}}.get(path, {})
        answer = server.post(path, **{"model": server.model(), **words, name: value})
        at_fault = next(iter(value)) if name == "options" else "images" if name == "messages" else name
        if answer.status_code != 400 or list(answer.json()) != ["error"] or at_fault not in answer.json()["error"]:
            missed.append((path, name, value, answer.status_code, answer.text))
    assert not missed, missed
    fields = {"options": {"num_gpu": None, "num_predict": 2}, "images": [], "suffix": "", "template": "", "keep_alive": None, "format": ""}
    assert server.post("/api/generate", model=server.model(), prompt="Hello!", stream=False, **fields).status_code == 200


def test_what_changes_nothing_is_accepted_with_a_warning(server: Server):
    """Options of the machine, a context that is too long, fields of later versions."""
    machine = {"num_gpu": 0, "num_thread": 4, "num_batch": 512, "use_mmap": True, "num_keep": 24, "num_ctx": 9005.0}
    off = {"mirostat": 0, "mirostat_tau": 5.0, "tfs_z": 1, "penalize_newline": True}
    options = {"num_predict": 2, **machine, **off, "of_later": 1}
    answer = server.post("/api/chat", model=server.model(), messages=HELLO, stream=False, truncate=True, moood=1, options=options)
    warnings = answer.headers.get_list("warning")
    missing = [name for name in (*machine, "mirostat_tau", "of_later", "moood", "truncate") if not any(name in warning for warning in warnings)]
    assert answer.status_code == 200 and not missing, (answer.text, missing, warnings)


def test_images_of_earlier_messages_are_left_out(server: Server):
    """Agents send the whole conversation again."""
    said = [{**HELLO[0], "images": ["aGk="]}, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Go on."}]
    answer = server.post("/api/chat", model=server.model(), messages=said, stream=False, options={"num_predict": 2})
    assert answer.status_code == 200 and any("images" in warning for warning in answer.headers.get_list("warning")), answer.text


def test_texts_become_vectors(server: Server):
    """By the new path, for lists, and by the old one, for one text."""
    many = client(server).embed(server.model(), ["The lamp is on.", "It is bright here."])
    assert len(many.embeddings) == 2 and many.prompt_eval_count > 4, many
    one = client(server).embeddings(server.model(), "The lamp is on.")
    assert list(one.embedding) == list(many.embeddings[0])


def test_a_model_that_is_here_is_pulled(server: Server):
    """Programs pull before they ask; nothing else can be had."""
    assert client(server).pull(server.model()).status == "success"
    assert [line.status for line in client(server).pull(server.model(), stream=True)] == ["success"]
    with refused(ollama.ResponseError, status_code=404):
        client(server).pull("gpt-0")


def test_errors_have_their_status(server: Server):
    """An unknown model, an unknown role, a prompt that is too long."""
    with refused(ollama.ResponseError, status_code=404, error='model "gpt-0" not found'):
        client(server).generate("gpt-0", "Hello!")
    with refused(ollama.ResponseError, status_code=404):
        list(client(server).chat("gpt-0", HELLO, stream=True))
    with refused(ollama.ResponseError, status_code=400):
        chat(server, [{"role": "cook", "content": ""}])
    with refused(ollama.ResponseError, status_code=400):
        generate(server, "many words " * 5000)
    assert server.post("/api/chat", messages=HELLO).json() == {"error": 'the field "model" is missing'}
    assert httpx.post(f"{server.place}/api/push", json={"model": "x"}).status_code == 404


def test_thoughts_that_a_model_does_not_have_are_refused(server: Server):
    """None are what it has anyway."""
    if "thinking" in client(server).show(server.model()).capabilities:
        assert chat(server, think=True).done
    else:
        with refused(ollama.ResponseError, status_code=400):
            chat(server, think=True)
    assert chat(server, think=False).done


def test_a_client_that_leaves_frees_its_job(server: Server):
    """In the middle of a stream."""
    before = server.count("generated_tokens_total")
    stream = chat(server, format=LONG_FORMAT, stream=True, options={"num_predict": -1})
    next(stream)
    stream.close()
    wait_idle(server)
    assert server.count("generated_tokens_total") - before < 900, "the text was written to its end"


def test_keys_are_asked_for(server: Server):
    """As a header, which is how the client sends them."""
    with server.another("--api-key", "right") as closed:
        with refused(ollama.ResponseError, status_code=401):
            client(closed).list()
        assert client(closed, headers={"Authorization": "Bearer right"}).list().models
