"""Anthropic's client for Python: answers as a whole and in parts, tools, counts, and errors."""

import json
import time
from pathlib import Path
from typing import Literal

import anthropic
import pydantic

from serving import HELLO, Server, refused, wait_idle

HOUSE = json.loads((Path(__file__).parents[2] / "examples" / "home" / "tools.json").read_text())
TOOLS = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in HOUSE]
LIGHT = [{"role": "user", "content": "turn on the kitchen light"}]
# What the client has no arguments for any more, and the interface has.
SAMPLING = ("temperature", "top_p", "top_k")
STORY = [{"role": "user", "content": "Tell me a story about a fox."}]
# A call that no model can make short.
ENDLESS = {
    "name": "paint",
    "input_schema": {
        "type": "object",
        "properties": {"colours": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 900, "maxItems": 900}},
        "required": ["colours"],
    },
}


def client(server: Server, api_key="none") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.place, api_key=api_key, max_retries=0, timeout=60)


def fields_of(server: Server, messages, fields: dict) -> dict:
    """An answer of at most 24 tokens, always the same, if nothing else is asked for."""
    return {"model": server.model(), "messages": messages, "max_tokens": 24, "temperature": 0, **fields}


def arguments_of(server: Server, messages, fields: dict) -> dict:
    """The same as arguments of the client."""
    fields = fields_of(server, messages, fields)
    extra = {name: fields.pop(name) for name in SAMPLING if name in fields}
    return fields | {"extra_body": extra | fields.get("extra_body", {})}


def ask(server: Server, messages=HELLO, **fields):
    return client(server).messages.create(**arguments_of(server, messages, fields))


def streamed(server: Server, messages=HELLO, **fields):
    """What the client's own helper makes of a stream."""
    with client(server).messages.stream(**arguments_of(server, messages, fields)) as stream:
        return stream.get_final_message()


def events(server: Server, messages=HELLO, **fields) -> list[tuple[str, dict]]:
    """Names and data as they come over the wire."""
    answer = server.post("/v1/messages", **fields_of(server, messages, {"stream": True, **fields}))
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
    told = [block.split("\n") for block in answer.text.strip().split("\n\n") if not block.startswith(":")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in told]


def said(message) -> dict:
    """What a message says, without what differs from one answer to the next."""
    usage = message.usage
    told = {name: getattr(message, name) for name in ("type", "role", "model", "stop_reason", "stop_sequence")}
    blocks = [block.to_dict() | {"parsed_output": None} for block in message.content]
    read = usage.input_tokens + usage.cache_read_input_tokens
    return told | {"blocks": blocks, "read": read, "written": usage.output_tokens}


def text_of(message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def calls_of(message) -> list:
    return [block for block in message.content if block.type == "tool_use"]


def test_a_message_has_the_fields_of_the_interface(server: Server):
    """All fields of the API are present."""
    message = ask(server)
    assert message.id.startswith("msg_") and message.type == "message" and message.role == "assistant", message
    assert message.model == server.model() and message._request_id.startswith("req-"), message
    (block,) = message.content
    assert block.type == "text" and block.text.strip(), message
    assert message.stop_reason in ("end_turn", "max_tokens") and message.stop_sequence is None, message
    usage = message.usage
    assert 0 < usage.output_tokens <= 24 and usage.input_tokens > 0 and usage.cache_creation_input_tokens == 0, usage


def test_content_and_system_are_texts_or_blocks(server: Server):
    """The same either way; marks of what to keep are taken."""
    mark = {"cache_control": {"type": "ephemeral"}}
    block = lambda text: [{"type": "text", "text": text, **mark}]
    as_text = ask(server, system="You are a pirate.")
    as_blocks = ask(server, [{"role": "user", "content": block("Hello!")}], system=block("You are a pirate."), extra_body=mark)
    assert said(as_text) == said(as_blocks), (as_text, as_blocks)
    assert said(as_text)["read"] > said(ask(server))["read"], "the model was not told"


def test_turns_are_sent_back_as_they_came(server: Server):
    """The client's objects and their dumps; of a stream, too."""
    for answer in (ask(server), streamed(server)):
        dumps = [block.model_dump() for block in answer.content]
        answers = [ask(server, [*HELLO, {"role": "assistant", "content": content}, *STORY]) for content in (answer.content, dumps, text_of(answer))]
        assert said(answers[0]) == said(answers[1]) == said(answers[2]), answers


def test_a_stream_says_what_the_whole_says(server: Server):
    """Text, reason and usage."""
    whole, parts = ask(server, STORY, max_tokens=80), streamed(server, STORY, max_tokens=80)
    assert said(whole) == said(parts), (whole, parts)
    with client(server).messages.stream(**arguments_of(server, STORY, {"max_tokens": 80})) as stream:
        assert "".join(stream.text_stream) == text_of(whole)


def test_a_stream_has_its_order(server: Server):
    """A start, a block that begins, grows and ends, the reason, a stop; each names itself twice."""
    told = events(server, STORY)
    assert all(name == data["type"] for name, data in told), told
    names = [name for name, _ in told]
    assert names[:2] == ["message_start", "content_block_start"], names
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"], names
    assert len(names) > 6 and set(names[2:-3]) == {"content_block_delta"}, names
    start, end = told[0][1]["message"], told[-2][1]
    assert start["content"] == [] and start["stop_reason"] is None and start["usage"]["input_tokens"] > 0, start
    assert end["delta"]["stop_reason"] == "max_tokens" and end["usage"]["output_tokens"] == 24, end


def test_an_answer_of_nothing_has_its_form(server: Server):
    """No block, and what ended it; it may be sent back."""
    first = text_of(ask(server))[:2]
    for answer in (ask(server, stop_sequences=[first]), streamed(server, stop_sequences=[first])):
        assert answer.content == [] and answer.stop_reason == "stop_sequence" and answer.stop_sequence == first, answer
        assert ask(server, [*HELLO, {"role": "assistant", "content": answer.content}, *HELLO]).content
    assert [name for name, _ in events(server, max_tokens=0)] == ["message_start", "message_delta", "message_stop"]


def test_stop_sequences_end_the_text_and_are_told(server: Server):
    """The one that came, not the others."""
    whole = text_of(ask(server, STORY))
    stop = whole[len(whole) // 2 :][:3]
    for answer in (ask, streamed):
        message = answer(server, STORY, stop_sequences=["never said, that one", stop])
        assert text_of(message).rstrip() == whole.split(stop)[0].rstrip(), (whole, stop, message)
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop), message


def test_an_answer_that_ends_by_itself_says_so(server: Server):
    """Whether something could have stopped it or not."""
    for stops in ([], ["never said, that one"]):
        message = ask(server, max_tokens=400, stop_sequences=stops)
        assert (message.stop_reason, message.stop_sequence) == ("end_turn", None), message


def test_max_tokens_cut_an_answer(server: Server):
    message = ask(server, STORY, max_tokens=5)
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 5, message


def test_a_tool_is_called_and_its_result_taken(server: Server):
    """A turn of an agent, whole and streamed: call, result, answer."""
    fields = {"tools": TOOLS, "max_tokens": 200}
    for answer in (ask, streamed):
        message = answer(server, LIGHT, **fields)
        (call,) = calls_of(message)
        assert message.stop_reason == "tool_use" and call.id and call.name == "set_light", message
        assert call.input == {"room": "kitchen", "on": True}, call
        for content in (message.content, [block.model_dump(exclude_none=True) for block in message.content]):
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": '{"ok": true}'}]
            turns = [*LIGHT, {"role": "assistant", "content": content}, {"role": "user", "content": results}]
            last = answer(server, turns, **fields)
            assert last.stop_reason == "end_turn" and text_of(last), last


def test_calls_are_the_same_in_parts(server: Server):
    """One after another, each a block of its own."""
    both = [{"role": "user", "content": "turn on the kitchen light and set a timer for 5 minutes"}]
    fields = {"tools": TOOLS, "tool_choice": {"type": "any"}, "max_tokens": 300}
    whole, parts = ask(server, both, **fields), streamed(server, both, **fields)
    inputs = [[(call.name, call.input) for call in calls_of(message)] for message in (whole, parts)]
    assert inputs[0] == inputs[1] and [name for name, _ in inputs[0]] == ["set_light", "set_timer"], (whole, parts)
    ids = [call.id for message in (whole, parts) for call in calls_of(message)]
    assert len(set(ids)) == len(ids), ids
    started = [data for name, data in events(server, both, **fields) if name == "content_block_start"]
    assert [data["index"] for data in started] == list(range(len(whole.content))), started
    assert all(data["content_block"]["input"] == {} for data in started if data["content_block"]["type"] == "tool_use")


def test_results_may_be_blocks_errors_and_nothing(server: Server):
    """Text only; the model is told of an error."""
    fields = {"tools": TOOLS, "max_tokens": 60}
    message = ask(server, LIGHT, **fields)
    (call,) = calls_of(message)

    def after(**result):
        content = [{"type": "tool_result", "tool_use_id": call.id, **result}]
        return said(ask(server, [*LIGHT, {"role": "assistant", "content": message.content}, {"role": "user", "content": content}], **fields))

    plain = after(content="no lamp")
    assert after(content=[{"type": "text", "text": "no lamp"}], is_error=False) == plain
    assert after(content="no lamp", is_error=True)["read"] > plain["read"] > after()["read"]


def test_tool_choice_is_kept_to(server: Server):
    """Any tool, a named one, none; no parallel calls."""
    call = lambda choice, messages=HELLO: ask(server, messages, tools=TOOLS, max_tokens=300, tool_choice=choice)
    assert calls_of(call({"type": "any"})) and not calls_of(call({"type": "none"}, LIGHT))
    named = calls_of(call({"type": "tool", "name": "set_volume"}))
    assert named and all(one.name == "set_volume" and isinstance(one.input, dict) for one in named), named
    both = [{"role": "user", "content": "turn on the kitchen light and set a timer for 5 minutes"}]
    assert len(calls_of(call({"type": "any", "disable_parallel_tool_use": True}, both))) == 1


def test_counts_are_those_of_the_answer(server: Server):
    """With everything that makes a prompt longer."""
    counts = []
    assert client(server).messages.count_tokens(model=server.model(), messages=LIGHT, extra_body={"max_tokens": 1, "stream": True})
    for fields in ({}, {"system": "You are a pirate."}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": {"type": "any"}, "system": "Be kind."}):
        count = client(server).messages.count_tokens(model=server.model(), messages=LIGHT, **fields).input_tokens
        assert count == said(ask(server, LIGHT, max_tokens=1, **fields))["read"], fields
        counts.append(count)
    assert counts[0] < counts[1] and counts[0] < counts[2], counts


def test_a_prompt_that_was_read_is_counted_apart(server: Server):
    """All of the second one but its last token."""
    new = [{"role": "user", "content": f"Tell me of {time.time_ns()} small boats and of the harbour that they came from."}]
    first, second = ask(server, new).usage, ask(server, new).usage
    assert second.cache_read_input_tokens > first.cache_read_input_tokens and second.input_tokens <= 1, (first, second)
    assert first.input_tokens + first.cache_read_input_tokens == second.input_tokens + second.cache_read_input_tokens


def test_fields_that_say_the_usual_are_taken(server: Server):
    """And those for the books."""
    taken = {"metadata": {"user_id": "me"}, "service_tier": "auto", "thinking": {"type": "disabled"}, "top_k": 5, "top_p": 0.9}
    for name, value in taken.items():
        assert ask(server, **{name: value}).role == "assistant", name
    assert client(server).beta.messages.create(**arguments_of(server, HELLO, {})).role == "assistant"


def remarks(answer) -> list[str]:
    """What the headers of an answer say of fields that change nothing."""
    return [value.split('"', 1)[1] for value in answer.headers.get_list("warning")]


def test_fields_that_change_nothing_are_told_in_headers(server: Server):
    """Fields of Claude Code and unknown fields; the answer is the same."""
    more = {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "colour": "red"}
    more |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "cache_control": {"type": "ephemeral"}}
    plain = server.post("/v1/messages", **fields_of(server, HELLO, {}))
    answer = server.post("/v1/messages?beta=true", **fields_of(server, HELLO, more))
    assert answer.status_code == 200 and answer.json()["content"] == plain.json()["content"], answer.text
    told = remarks(answer)
    assert len(told) == len(more) and not remarks(plain), (told, remarks(plain))
    assert all(any(name in remark for remark in told) for name in more), told


def test_a_tool_runner_runs_tools(server: Server):
    """The client's own loop: call, result, answer."""
    lights = []

    @anthropic.beta_tool
    def set_light(room: str, on: bool) -> str:
        """Turn the light of a room on or off.

        Args:
            room: The room.
            on: Whether the light is to be on.
        """
        lights.append((room, on))
        return '{"ok": true}'

    fields = arguments_of(server, LIGHT, {"max_tokens": 200})
    last = client(server).beta.messages.tool_runner(tools=[set_light], **fields).until_done()
    assert lights == [("kitchen", True)] and text_of(last) and last.stop_reason == "end_turn", (lights, last)
    going_on = server.post("/v1/messages", **fields_of(server, HELLO, {"thread": {"type": "continue", "previous_message_id": "x"}}))
    assert going_on.json()["error"]["details"] == {"error_code": "thread_not_found"}, going_on.text


def test_an_answer_is_parsed_by_its_schema(server: Server):
    """The client makes a schema of a class, and an object of the answer."""

    class Light(pydantic.BaseModel):
        room: Literal["kitchen", "attic"]
        on: bool

    fields = arguments_of(server, LIGHT, {"max_tokens": 60})
    light = client(server).messages.parse(output_format=Light, **fields).parsed_output
    assert isinstance(light, Light), light


def test_models_are_listed(server: Server):
    """In this interface's form, by its client."""
    models = list(client(server).models.list())
    assert server.model() in [model.id for model in models] and all(model.type == "model" for model in models), models
    assert client(server).models.retrieve(server.model()).display_name == server.model()
    with refused(anthropic.NotFoundError, type="not_found_error"):
        client(server).models.retrieve("claude-0")


def test_system_messages_may_stand_anywhere(server: Server):
    """In the middle and at the end; the model is told of them."""
    system = {"role": "system", "content": "You are a pirate."}
    plain = said(ask(server, [*HELLO, {"role": "assistant", "content": "Yes?"}, *STORY]))["read"]
    for turns in ([*HELLO, system, {"role": "assistant", "content": "Yes?"}, *STORY], [*HELLO, {"role": "assistant", "content": "Yes?"}, *STORY, system]):
        assert said(ask(server, turns))["read"] > plain, turns


def test_what_a_model_cannot_read_is_left_out_of_earlier_turns(server: Server):
    """Pictures, and what Anthropic's own tools have found."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    text = {"type": "text", "text": "Hello!"}
    turns = [{"role": "user", "content": [image, text]}, {"role": "assistant", "content": [search, found, text]}, *STORY]
    answer = server.post("/v1/messages", **fields_of(server, turns, {}))
    assert answer.status_code == 200, answer.text
    assert len(remarks(answer)) == 3 and "image" in remarks(answer)[0], remarks(answer)
    document = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "The lamp is red."}}
    read = lambda block: said(ask(server, [{"role": "user", "content": [block, text]}]))["read"]
    assert read(document) > read(text)


def test_ids_of_calls_never_repeat(server: Server):
    """Not in another conversation either."""
    ids = [call.id for _ in range(3) for call in calls_of(ask(server, LIGHT, tools=TOOLS, max_tokens=200))]
    assert len(ids) == len(set(ids)) == 3 and all(name.startswith("toolu_") for name in ids), ids


def check_named(server: Server, wrong: list):
    """Each of these fields is a bad request, whose message names it."""
    missed = []
    for name, value in wrong:
        answer = server.post("/v1/messages", **fields_of(server, HELLO, {name: value}))
        told = answer.json()
        error = told.get("error", {})
        if (answer.status_code, error.get("type"), told["type"]) != (400, "invalid_request_error", "error") or name not in error["message"]:
            missed.append((name, value, answer.status_code, error))
    assert not missed, missed


def test_a_refused_field_is_named(server: Server):
    """What is beyond its limits, of another type, missing, or not known."""
    wrong = [("max_tokens", None), ("max_tokens", -1), ("temperature", "hot"), ("temperature", -1), ("top_p", 2), ("top_k", 1.5)]
    wrong += [("messages", "Hello"), ("messages", []), ("system", 1), ("stop_sequences", "x"), ("stop_sequences", [""])]
    wrong += [("stop_sequences", ["x"] * 17), ("tool_choice", {"type": "any"}), ("tool_choice", {"type": "fish"})]
    wrong += [("thread", "x"), ("output_config", {"format": {"type": "xml"}}), ("stream", "yes")]
    check_named(server, wrong)


def test_what_is_not_there_is_refused(server: Server):
    """Images, tools of servers that must be called, results of nothing, calls without results."""
    block = lambda block, role="user": [{"role": role, "content": [block]}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    result = {"type": "tool_result", "tool_use_id": "nobody", "content": "x"}
    broken = {"name": "f", "input_schema": {"type": "fish"}}
    wrong = [("messages", block(image)), ("messages", block({"type": "document"})), ("messages", block(result))]
    call = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    wrong += [("messages", [*HELLO, *block(call, "assistant")]), ("tools", [broken]), ("tools", [TOOLS[0]] * 2)]
    wrong += [("tools", [{"name": "f"}]), ("thinking", {"type": "fish"}), ("system", 1)]
    check_named(server, wrong)
    search = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    assert server.post("/v1/messages", **fields_of(server, HELLO, search)).status_code == 200
    search["tool_choice"] = {"type": "tool", "name": "web_search"}
    assert "tool_choice" in server.post("/v1/messages", **fields_of(server, HELLO, search)).json()["error"]["message"]


def test_errors_have_their_classes(server: Server):
    """By which programs tell them apart."""
    with refused(anthropic.BadRequestError, status_code=400):
        ask(server, [{"role": "user", "content": "many words " * 5000}])
    with refused(anthropic.APIStatusError, status_code=413):
        ask(server, [{"role": "user", "content": "x" * (17 << 20)}])
    assert server.post("/v1/messages/batches").json()["error"]["type"] == "not_found_error"


def test_the_answer_goes_on_with_a_last_message_of_the_assistant(server: Server):
    """Whatever it is asked to be called."""
    begun = [*HELLO, {"role": "assistant", "content": "The best"}]
    answer = ask(server, begun, model="claude-0")
    assert answer.model == server.model() and not answer.content[0].text.startswith("The best"), answer
    n_more = client(server).messages.count_tokens(model="claude-0", messages=begun).input_tokens
    assert n_more > client(server).messages.count_tokens(model="claude-0", messages=HELLO).input_tokens


def test_keys_are_asked_for(server: Server):
    """As the client sends them."""
    with server.another("--api-key", "right") as closed:
        fields = {"model": server.model(), "messages": HELLO, "max_tokens": 2}
        with refused(anthropic.AuthenticationError, type="authentication_error"):
            client(closed, "wrong").messages.create(**fields)
        assert client(closed, "right").messages.create(**fields).role == "assistant"


def test_closing_a_stream_frees_its_place(server: Server):
    """A call that would have been long ends soon."""
    before = server.count("generated_tokens_total")
    fields = arguments_of(server, HELLO, {"tools": [ENDLESS], "tool_choice": {"type": "any"}, "max_tokens": 4000})
    with client(server).messages.stream(**fields) as stream:
        next(event for event in stream if event.type == "input_json")
        assert server.count("jobs_running") == 1
    wait_idle(server)
    assert server.count("generated_tokens_total") - before < 900, "the call was written to its end"


def test_a_call_that_is_cut_is_none(server: Server):
    """In parts its block ends where it was cut, and the reason tells; it may be sent back, as it is or as its text."""
    fields = {"tools": [ENDLESS], "tool_choice": {"type": "any"}, "max_tokens": 60}
    whole, parts = ask(server, **fields), streamed(server, **fields)
    assert whole.stop_reason == parts.stop_reason == "max_tokens" and not whole.content, (whole, parts)
    (call,) = parts.content
    assert call.type == "tool_use" and call.name == "paint", parts
    told = [data["delta"]["partial_json"] for name, data in events(server, **fields) if name == "content_block_delta"]
    for given in (call.input, "".join(told)):
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": given}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "the input is no JSON", "is_error": True}
        turns = [*HELLO, {"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
        answer = server.post("/v1/messages", **fields_of(server, turns, {"tools": [ENDLESS], "max_tokens": 4}))
        assert answer.status_code == 200, answer.text
