"""OpenAI's client for Python: responses, in one piece and as events."""

import json
import math
import pathlib
import time

import openai
from langchain_openai import ChatOpenAI

from openai_chat import Cart, Place
from serving import HELLO, LONG, Server, chat, events, refused, wait_idle

PATH = "/v1/responses"
LOGPROBS = ["message.output_text.logprobs"]
LONG_TEXT = {"format": {"type": "json_schema", "name": "long", "schema": LONG["json_schema"]["schema"]}}
PLACE = {"type": "function", "name": "find", "description": "Looks for a thing.", "parameters": Place.model_json_schema(), "strict": True}
HOUSE = pathlib.Path(__file__).parents[2] / "examples/home/tools.json"


def fields_of(server: Server, **fields) -> dict:
    """An answer of at most 24 tokens, the likeliest ones, if nothing else is asked for."""
    return {"model": server.model(), "input": "Hello!", "max_output_tokens": 24, "temperature": 0, **fields}


def respond(server: Server, **fields):
    return server.client().responses.create(**fields_of(server, **fields))


def streamed(server: Server, **fields) -> list:
    return list(respond(server, stream=True, **fields))


def house() -> list[dict]:
    """The tools of a house, in the form of this interface."""
    return [{"type": "function", "strict": False, **tool} for tool in json.loads(HOUSE.read_text())]


def said(response) -> list[dict]:
    """Items without the ids that differ in each response."""
    return [{key: value for key, value in item.to_dict().items() if key not in ("id", "call_id")} for item in response.output]


def test_a_response_has_the_fields_of_the_interface(server: Server):
    """All fields of the API are present."""
    answer = respond(server, metadata={"a": "b"}, instructions="Be kind.", user="me", temperature=0.7, top_p=0.9)
    assert answer.object == "response" and answer.id.startswith("resp_") and answer.model == server.model(), answer
    assert abs(answer.created_at - time.time()) < 60 and answer.status in ("completed", "incomplete"), answer
    assert answer.error is None and answer.tools == [] and answer.tool_choice == "auto" and answer.parallel_tool_calls, answer
    assert (answer.temperature, answer.top_p, answer.truncation, answer.user) == (0.7, 0.9, "disabled", "me"), answer
    assert answer.instructions == "Be kind." and answer.metadata == {"a": "b"} and answer.max_output_tokens == 24, answer
    assert answer.text.format.type == "text" and answer.to_dict()["store"] is False and answer._request_id, answer
    type(answer).model_validate(answer.to_dict())


def test_a_response_is_a_message(server: Server):
    """With one text, and what it took."""
    answer = respond(server)
    (item,) = answer.output
    assert item.type == "message" and item.role == "assistant" and item.id.startswith("msg_"), item
    (part,) = item.content
    assert part.type == "output_text" and part.annotations == [] and part.logprobs == [] and part.text == answer.output_text, part
    usage = answer.usage
    assert 0 < usage.output_tokens <= 24 and usage.total_tokens == usage.input_tokens + usage.output_tokens, usage
    assert usage.output_tokens_details.reasoning_tokens == 0 <= usage.input_tokens_details.cached_tokens, usage


def test_it_says_what_chat_says(server: Server):
    """To a text, to a message, to a message in parts, to instructions."""
    text = chat(server, temperature=0).choices[0].message.content
    parts = [{"role": "user", "type": "message", "content": [{"type": "input_text", "text": "Hello!"}]}]
    for given in ("Hello!", HELLO, parts):
        assert respond(server, input=given).output_text == text, given
    told = chat(server, messages=[{"role": "system", "content": "Be kind."}, *HELLO], temperature=0)
    developer = [{"role": "developer", "content": "Be kind."}, *HELLO]
    for fields in ({"instructions": "Be kind."}, {"input": developer}):
        answer = respond(server, **fields)
        assert answer.output_text == told.choices[0].message.content, answer
        assert answer.usage.input_tokens == told.usage.prompt_tokens, answer


def test_a_seed_repeats_a_response(server: Server):
    """Fields of ours are taken here too."""
    extra = {"seed": 7, "top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "stop": ["never said, that one"]}
    first, second = (respond(server, temperature=0.7, extra_body=extra) for _ in range(2))
    assert first.output_text == second.output_text and first.id != second.id


def test_items_are_sent_back(server: Server):
    """As the client's objects and as model_dump() gives them; the conversation is what it was with chat."""
    first = respond(server)
    text = first.output_text
    told = chat(server, messages=[*HELLO, {"role": "assistant", "content": text}, *HELLO], temperature=0)
    for items in (first.output, [item.model_dump() for item in first.output], [item.to_dict() for item in first.output]):
        answer = respond(server, input=[*HELLO, *items, *HELLO])
        assert answer.output_text == told.choices[0].message.content, answer
        assert answer.usage.input_tokens == told.usage.prompt_tokens, answer


def test_a_call_comes_to_a_result(server: Server):
    """The built-in model turns on a light, and says so when it hears what came of it."""
    asked = [{"role": "user", "content": "turn on the kitchen light"}]
    answer = respond(server, input=asked, tools=house(), max_output_tokens=200)
    (call,) = answer.output
    assert call.type == "function_call" and call.id.startswith("fc_") and call.call_id and call.name == "set_light", call
    assert isinstance(call.arguments, str) and json.loads(call.arguments) == {"room": "kitchen", "on": True}, call
    assert answer.status == "completed" and answer.tools[0].name == "set_light", answer
    result = {"type": "function_call_output", "call_id": call.call_id, "output": '{"room": "kitchen", "on": true}'}
    parts = {**result, "output": [{"type": "input_text", "text": result["output"]}]}
    for items in ([call, result], [call.model_dump(), parts]):
        told = respond(server, input=[*asked, *items], tools=house(), max_output_tokens=200)
        assert told.output_text and all(item.type == "message" for item in told.output), told


def test_choices_of_tools_are_kept_to(server: Server):
    """By their names, all of them, or none."""
    named = {"type": "function", "name": "find"}
    for choice in ("required", named):
        answer = respond(server, tools=[PLACE], tool_choice=choice, parallel_tool_calls=False, max_output_tokens=400)
        (call,) = answer.output
        assert call.name == "find" and Place.model_validate_json(call.arguments), call
        told = answer.tool_choice if choice == "required" else answer.tool_choice.model_dump()
        assert told == choice and not answer.parallel_tool_calls, answer
    none = respond(server, tools=[PLACE], tool_choice="none")
    assert all(item.type == "message" for item in none.output), none


def test_parse_gives_models(server: Server):
    """Of a text, and of arguments; what was parsed may be sent back."""
    parse = server.client().responses.parse
    answer = parse(**fields_of(server, text_format=Cart, max_output_tokens=400))
    assert isinstance(answer.output_parsed, Cart) and answer.text.format.type == "json_schema", answer
    assert respond(server, input=[*HELLO, *answer.output, *HELLO]).output_text
    tools = [openai.pydantic_function_tool(Place)["function"] | {"type": "function"}]
    called = parse(**fields_of(server, tools=tools, tool_choice="required", max_output_tokens=400))
    assert Place.model_validate(called.output[0].parsed_arguments), called
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "{}"} for call in called.output]
    assert respond(server, input=[*HELLO, *called.output, *results], tools=tools, tool_choice="none").output


def test_json_objects_are_such(server: Server):
    """Whatever the model wants to say."""
    answer = respond(server, text={"format": {"type": "json_object"}, "verbosity": "medium"}, max_output_tokens=200)
    assert isinstance(json.loads(answer.output_text), dict) and answer.text.format.type == "json_object", answer


def test_what_was_cut_is_incomplete(server: Server):
    """And says why, as a whole and as events."""
    whole, parts = (respond(server, text=LONG_TEXT, max_output_tokens=5, stream=stream) for stream in (False, True))
    last = list(parts)[-1]
    assert last.type == "response.incomplete", last
    for answer in (whole, last.response):
        assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens", answer
        assert answer.usage.output_tokens == 5 and answer.output[-1].status == "incomplete", answer


def test_a_call_that_was_cut_can_be_sent_back(server: Server):
    """It is incomplete, and nothing of it is a message."""
    fields = {"input": "turn on the kitchen light", "tools": house(), "tool_choice": "required"}
    cut = next(answer for n in range(6, 16) if (answer := respond(server, max_output_tokens=n, **fields)).output[0].type == "function_call")
    assert cut.status == "incomplete" and [item.status for item in cut.output] == ["incomplete"], cut
    assert respond(server, input=[*HELLO, *cut.output, *HELLO]).output


def test_tools_of_codex_come_back_in_its_form(server: Server):
    """Those of a namespace with it, those of any text with their text; others are left out."""
    space = {"type": "namespace", "name": "agents", "description": "d", "tools": [PLACE]}
    patch = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}
    for tools, kind, field in [([space], "function_call", "namespace"), ([patch], "custom_tool_call", "input")]:
        fields = fields_of(server, tools=[*tools, {"type": "web_search"}], tool_choice="required", parallel_tool_calls=False, max_output_tokens=300)
        (call,) = server.post(PATH, **fields).json()["output"]
        assert call["type"] == kind and field in call and call["name"] in ("find", "patch"), call
        result = {"type": f"{kind}_output", "call_id": call["call_id"], "output": "ok"}
        answer = server.post(PATH, **{**fields, "input": [*HELLO, call, result], "tool_choice": "none"})
        assert answer.status_code == 200 and "web_search" in answer.headers["warning"], answer.text
        events = respond(server, **{**fields, "stream": True})
        assert [event.item.type for event in events if event.type == "response.output_item.done"] == [kind]


def test_tokens_of_an_input_are_counted(server: Server):
    """As many as the answer says."""
    counted = server.post(f"{PATH}/input_tokens", input="Hello!", instructions="Be kind.").json()["input_tokens"]
    assert counted == respond(server, instructions="Be kind.").usage.input_tokens


def test_logprobs_are_those_of_the_text(server: Server):
    """Bytes that spell it, alternatives in order; in events the same."""
    fields = {"include": LOGPROBS, "top_logprobs": 3}
    answer = respond(server, **fields)
    entries = answer.output[0].content[0].logprobs
    assert b"".join(bytes(entry.bytes) for entry in entries) == answer.output_text.encode(), entries
    for entry in entries:
        best = [one.logprob for one in entry.top_logprobs]
        assert len(best) == 3 and best == sorted(best, reverse=True) and sum(map(math.exp, best)) <= 1.0001, entry
    parts = streamed(server, **fields)
    deltas = [part for part in parts if part.type == "response.output_text.delta"]
    assert sum(len(part.logprobs) for part in deltas) == len(entries) and all(part.logprobs for part in deltas), deltas
    assert said(parts[-1].response) == said(answer)


def test_events_have_their_order(server: Server):
    """Counted from 0, by names that stand beside the data; nothing behind the last."""
    answer = server.post(PATH, input="Hello!", max_output_tokens=8, stream=True)
    data = [json.loads(one) for one in events(answer)]
    names = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names == [one["type"] for one in data] and [one["sequence_number"] for one in data] == list(range(len(data)))
    begin = ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"]
    end = ["output_text.done", "content_part.done", "output_item.done"]
    assert names[:5] == [f"response.{name}" for name in begin] and names[-4:-1] == [f"response.{name}" for name in end], names
    assert names[-1] in ("response.completed", "response.incomplete") and "[DONE]" not in answer.text
    assert len({one["item_id"] for one in data if "item_id" in one} | {data[2]["item"]["id"]}) == 1, data


def test_the_clients_stream_helper_collects(server: Server):
    """The last response is the whole answer."""
    with server.client().responses.stream(**fields_of(server, max_output_tokens=400, text_format=Cart)) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, Cart) and "".join(texts) == final.output_text, final
    whole = server.client().responses.parse(**fields_of(server, max_output_tokens=400, text_format=Cart))
    assert final.output_parsed == whole.output_parsed and said(final) == said(whole)
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_seed_streams_what_the_whole_says(server: Server):
    """Settings, items and counts."""
    fields = {"temperature": 0.7, "extra_body": {"seed": 5}, "max_output_tokens": 60}
    parts, whole = streamed(server, **fields), respond(server, **fields)
    last = parts[-1].response
    assert said(last) == said(whole) and last.status == whole.status and last.text == whole.text
    assert "".join(part.delta for part in parts if part.type == "response.output_text.delta") == whole.output_text


def test_calls_stream(server: Server):
    """An item, pieces of arguments that make all of them, and the item again."""
    fields = {"input": "turn on the kitchen light", "tools": house(), "max_output_tokens": 200}
    parts = streamed(server, **fields)
    (added,) = (part.item for part in parts if part.type == "response.output_item.added")
    (done,) = (part for part in parts if part.type == "response.function_call_arguments.done")
    pieces = [part.delta for part in parts if part.type == "response.function_call_arguments.delta"]
    assert added.name == "set_light" and added.arguments == "" and added.status == "in_progress", added
    assert "".join(pieces) == done.arguments and len(pieces) > 1 and done.item_id == added.id, pieces
    item = parts[-1].response.output[0]
    assert item.arguments == done.arguments and item.id == added.id and item.call_id == added.call_id, item
    assert said(parts[-1].response) == said(respond(server, **fields))


def test_fields_that_are_null_are_not_there(server: Server):
    """Clients in other languages send all fields that they have."""
    names = ["instructions", "stream", "stream_options", "max_output_tokens", "temperature", "top_p", "top_logprobs", "include", "text", "tools"]
    names += ["tool_choice", "parallel_tool_calls", "reasoning", "metadata", "user", "store", "background", "truncation", "service_tier", "conversation"]
    names += ["previous_response_id", "prompt", "max_tool_calls", "safety_identifier", "prompt_cache_key"]
    wrong = [name for name in names if server.post(PATH, input="Hello!", **{"max_output_tokens": 2, name: None}).status_code != 200]
    assert not wrong, f"null is refused for {wrong}"
    usual = {"store": True, "background": False, "truncation": "auto", "reasoning": {"effort": "low", "summary": "auto"}, "service_tier": "auto", "prompt_cache_key": "k"}
    usual |= {"text": {"verbosity": "low", "format": None}, "stream_options": {"include_obfuscation": True}, "safety_identifier": "me"}
    usual |= {"include": ["reasoning.encrypted_content"], "client_metadata": {"a": "b"}, "max_tool_calls": 1, "seeed": 1}
    answer = server.post(PATH, input="Hello!", max_output_tokens=2, **usual)
    assert answer.status_code == 200, answer.text


def test_what_is_refused_is_named(server: Server):
    """Each by its own name."""
    wrong = [("background", True), ("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("prompt", {"id": "p"})]
    wrong += [("top_logprobs", 2), ("input", [{"type": "item_reference", "id": "1"}]), ("max_output_tokens", -2)]
    wrong += [("tools", [{**PLACE, "parameters": {"type": "fish"}}]), ("tool_choice", "required")]
    wrong += [("input", []), ("input", 1), ("temperature", -1), ("temperature", "hot")]
    wrong += [("input", [{"role": "user", "content": [{"type": kind}]}]) for kind in ("input_image", "input_file")]
    nested = {"text.format": {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "fish"}}}}}
    nested["tool_choice"] = {"tools": [PLACE], "tool_choice": {"type": "web_search"}}
    missed = []
    for name, fields in [(name, {name: value}) for name, value in wrong] + list(nested.items()):
        answer = server.post(PATH, **{"input": "Hello!", "max_output_tokens": 2, **fields})
        error = answer.json().get("error") or {}
        if (answer.status_code, error.get("param")) != (400, name):
            missed.append((name, answer.status_code, error))
    assert not missed, missed


def test_errors_are_those_of_the_client(server: Server):
    """A conversation that is too long, an input that is missing."""
    with refused(openai.BadRequestError, code="context_length_exceeded", param="input"):
        respond(server, input="many words " * 5000, stream=True)
    assert server.post(PATH, max_output_tokens=2).json()["error"]["param"] == "input"


def test_leaving_frees_the_place(server: Server):
    """Of a stream, and of an answer in one piece."""
    before = server.count("generated_tokens_total")
    stream = respond(server, text=LONG_TEXT, max_output_tokens=None, stream=True)
    next(part for part in stream if part.type == "response.output_text.delta")
    assert server.count("jobs_running") == 1
    stream.close()
    wait_idle(server)
    with refused(openai.APITimeoutError):
        server.client().with_options(timeout=0.3).responses.create(**fields_of(server, text=LONG_TEXT, max_output_tokens=None))
    wait_idle(server)
    assert server.count("generated_tokens_total") - before < 2 * 900, "the texts were written to their end"


def test_langchain_speaks_it(server: Server):
    """With its flag for this interface, whole, streamed and with tools."""
    options = {"base_url": server.api, "api_key": "none", "max_retries": 0, "temperature": 0, "max_tokens": 200, "use_responses_api": True}
    model = ChatOpenAI(model=server.model(), **options)
    whole = model.invoke("Hello!")
    parts = list(model.stream("Hello!"))
    assert whole.text and "".join(part.text for part in parts) == whole.text, (whole, parts)
    (call,) = model.bind_tools(house()).invoke("turn on the kitchen light").tool_calls
    assert call["name"] == "set_light" and call["args"] == {"room": "kitchen", "on": True}, call
