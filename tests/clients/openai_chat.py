"""OpenAI's client for Python: answers that come as a whole, and errors."""

import enum
import json
import math
import threading
import time

import openai
from pydantic import BaseModel, ConfigDict, Field

from serving import HELLO, LONG, Server, chat, is_json_object, refused, wait_idle


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Wheel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    spokes: int = Field(ge=0, le=99)
    colour: Colour


class Cart(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)
    wheels: list[Wheel] = Field(min_length=1, max_length=3)
    is_new: bool


class Place(BaseModel):
    """Where something is."""

    model_config = ConfigDict(extra="forbid")
    where: Colour
    floor: int = Field(ge=0, le=9)


def tool(name: str) -> dict:
    function = {"name": name, "description": "Looks for a thing.", "parameters": Place.model_json_schema(), "strict": True}
    return {"type": "function", "function": function}


TOOLS = [tool("find"), tool("lose")]
DIGITS = {"type": "array", "items": {"enum": list(range(10))}, "minItems": 24, "maxItems": 24}


def schema_format(schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "shape", "schema": schema, "strict": True}}


def check_call(call) -> None:
    """A call of one of the tools, with arguments that are a text of JSON and right for it."""
    assert call.type == "function" and call.id, call
    assert call.function.name in ("find", "lose"), call
    assert isinstance(call.function.arguments, str), call
    Place.model_validate_json(call.function.arguments)


def test_chat_has_the_fields_of_the_interface(server: Server):
    """All fields of the API are present."""
    answer = chat(server)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    assert abs(answer.created - time.time()) < 60 and answer.model == server.model(), answer
    assert answer._request_id, "x-request-id is missing"
    (choice,) = answer.choices
    assert choice.index == 0 and choice.message.role == "assistant" and isinstance(choice.message.content, str), choice
    assert choice.finish_reason in ("stop", "length") and choice.logprobs is None, choice
    assert choice.message.refusal is None and not choice.message.tool_calls, choice
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 24 and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage


def test_n_gives_several_answers_to_one_prompt(server: Server):
    """The prompt counts once, and each answer has its index."""
    one, three = chat(server), chat(server, n=3, temperature=0.7)
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert 3 <= three.usage.completion_tokens <= 72, three.usage


def test_stop_ends_the_text_and_is_left_out(server: Server):
    """As a text and as a list."""
    whole = chat(server, temperature=0).choices[0].message.content
    stop = whole[len(whole) // 2 :][:3]
    for given in (stop, ["never said, that one", stop]):
        choice = chat(server, temperature=0, stop=given).choices[0]
        assert choice.message.content == whole.split(stop)[0], (whole, stop, choice)
        assert choice.finish_reason == "stop", choice


def test_a_seed_repeats_an_answer(server: Server):
    """Also in the company of other answers."""
    first = chat(server, temperature=0.7, seed=7)
    others = [threading.Thread(target=chat, args=(server,), kwargs={"seed": seed}) for seed in range(4)]
    for other in others:
        other.start()
    second = chat(server, temperature=0.7, seed=7)
    for other in others:
        other.join()
    assert first.choices[0].message.content == second.choices[0].message.content


def test_seeds_make_different_answers(server: Server):
    """24 random digits differ between eight seeds, and between requests without a seed."""
    digits = {"response_format": schema_format(DIGITS), "temperature": 2.0, "max_tokens": 400}
    seeded = {chat(server, seed=seed, **digits).choices[0].message.content for seed in range(8)}
    assert len(seeded) > 1, seeded
    unseeded = {chat(server, seed=None, **digits).choices[0].message.content for _ in range(8)}
    assert len(unseeded) > 1, unseeded


def test_logprobs_are_those_of_a_distribution(server: Server):
    """One for each token, alternatives in order, none above 0."""
    answer = chat(server, temperature=0, logprobs=True, top_logprobs=5)
    entries = answer.choices[0].logprobs.content
    # The token that ends a text is not part of it.
    is_cut = answer.choices[0].finish_reason == "length"
    assert len(entries) == answer.usage.completion_tokens - (not is_cut), (len(entries), answer.usage)
    for entry in entries:
        best = [one.logprob for one in entry.top_logprobs]
        assert len(best) == 5 and best == sorted(best, reverse=True), entry
        assert entry.logprob <= 0 and sum(map(math.exp, best)) <= 1.0001, entry
        assert entry.bytes == entry.top_logprobs[0].bytes and entry.logprob == best[0], entry


def test_logprobs_spell_the_content(server: Server):
    """The bytes of the tokens are the text that was given."""
    choice = chat(server, logprobs=True).choices[0]
    spelt = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
    assert spelt == choice.message.content.encode(), (spelt, choice.message.content)
    assert all(entry.top_logprobs == [] for entry in choice.logprobs.content)


def test_logit_bias_forces_and_forbids(server: Server):
    """A token with +100 is all there is; one with -100 is not there."""
    token = server.tokens("a")[-1]
    forced = chat(server, temperature=0, max_tokens=8, logit_bias={str(token): 100}, logprobs=True)
    pieces = {bytes(entry.bytes) for entry in forced.choices[0].logprobs.content}
    assert len(pieces) == 1 and b"a" in pieces.pop(), forced
    letters = {"type": "array", "items": {"enum": [0, 1]}, "minItems": 12, "maxItems": 12}
    forbidden = {str(server.tokens(text)[-1]): -100 for text in ("1", " 1", ",1", "[1")}
    answer = chat(server, max_tokens=300, logit_bias=forbidden, response_format=schema_format(letters))
    assert json.loads(answer.choices[0].message.content) == [0] * 12, answer


def test_max_tokens_cut_an_answer(server: Server):
    """By either name of the field."""
    for name in ("max_tokens", "max_completion_tokens"):
        answer = chat(server, response_format=LONG, **{"max_tokens": None, name: 5})
        assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 5, answer


def test_json_object_is_one(server: Server):
    """Unless it was cut off; then it is the beginning of one."""
    choice = chat(server, max_tokens=200, response_format={"type": "json_object"}).choices[0]
    text = choice.message.content
    assert is_json_object(text) if choice.finish_reason == "stop" else text.lstrip().startswith("{"), choice


def test_json_schema_leaves_no_choice(server: Server):
    """An answer that can be only one."""
    shape = {"type": "object", "properties": {"a": {"const": "β\"x"}, "b": {"enum": [None]}}, "required": ["a", "b"], "additionalProperties": False}
    choice = chat(server, max_tokens=200, response_format=schema_format(shape)).choices[0]
    assert json.loads(choice.message.content) == {"a": "β\"x", "b": None} and choice.finish_reason == "stop", choice


def test_parse_gives_nested_models(server: Server):
    """Models in lists, enums, limits of numbers and lengths."""
    client = server.client()
    for parse in (client.chat.completions.parse, client.beta.chat.completions.parse):
        answer = parse(model=server.model(), messages=HELLO, response_format=Cart, max_tokens=400, seed=1)
        assert isinstance(answer.choices[0].message.parsed, Cart), answer


def test_parse_tells_that_an_answer_was_cut(server: Server):
    """The client sees finish_reason length."""
    with refused(openai.LengthFinishReasonError):
        server.client().chat.completions.parse(model=server.model(), messages=HELLO, response_format=Cart, max_tokens=2)


def test_tools_required_are_called(server: Server):
    """With arguments that are right for the schema."""
    answer = chat(server, tools=TOOLS, tool_choice="required", max_tokens=400)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls and choice.message.content is None, choice
    for call in choice.message.tool_calls:
        check_call(call)


def test_a_named_tool_is_called(server: Server):
    """The second of two."""
    choice = {"type": "function", "function": {"name": "lose"}}
    calls = chat(server, tools=TOOLS, tool_choice=choice, max_tokens=400).choices[0].message.tool_calls
    assert calls and all(call.function.name == "lose" for call in calls), calls
    check_call(calls[0])


def test_tools_may_be_forbidden_or_free(server: Server):
    """None: no call; auto: a call that is right, or none."""
    none = chat(server, tools=TOOLS, tool_choice="none").choices[0]
    assert not none.message.tool_calls and none.finish_reason in ("stop", "length"), none
    auto = chat(server, tools=TOOLS, tool_choice="auto", max_tokens=100).choices[0]
    for call in auto.message.tool_calls or []:
        check_call(call)


def test_parallel_tool_calls_can_be_forbidden(server: Server):
    """Exactly one call then."""
    for seed in range(4):
        fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400, "seed": seed}
        (call,) = chat(server, **fields).choices[0].message.tool_calls
        check_call(call)


def test_a_conversation_has_each_id_once(server: Server):
    """Results are found by it."""
    fields, said, ids = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 400}, [*HELLO], []
    for _ in range(2):
        message = chat(server, messages=said, **fields).choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": "{}"} for call in message.tool_calls]
        said += [message, *results, *HELLO]
        ids += [call.id for call in message.tool_calls]
    assert len(set(ids)) == len(ids), ids


def test_parse_gives_arguments_of_tools(server: Server):
    """The client's own helper for tools of pydantic models."""
    tools = [openai.pydantic_function_tool(Place)]
    fields = {"tools": tools, "tool_choice": "required", "max_tokens": 400}
    answer = server.client().chat.completions.parse(model=server.model(), messages=HELLO, **fields)
    assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Place), answer


def test_results_of_tools_are_taken(server: Server):
    """The assistant's message as the client's object and as model_dump() gives it."""
    message = chat(server, tools=TOOLS, tool_choice="required", max_tokens=400).choices[0].message
    for said in (message, message.model_dump(), message.model_dump(exclude_none=True)):
        results = [{"role": "tool", "tool_call_id": call.id, "content": '{"found": true}'} for call in message.tool_calls]
        answer = chat(server, messages=[*HELLO, said, *results], tools=TOOLS, tool_choice="none")
        assert isinstance(answer.choices[0].message.content, str), answer


def test_assistants_are_echoed(server: Server):
    """What was answered may be sent back as it came."""
    plain = chat(server).choices[0].message
    for said in (plain, plain.model_dump(), plain.to_dict()):
        assert chat(server, messages=[*HELLO, said, *HELLO]).choices[0].message.role == "assistant"


def test_what_parse_gave_is_echoed(server: Server):
    """The client sends its field "parsed" along."""
    parse = server.client().chat.completions.parse
    message = parse(model=server.model(), messages=HELLO, response_format=Place, max_tokens=400).choices[0].message
    assert chat(server, messages=[*HELLO, message, *HELLO]).choices[0].message.role == "assistant"


def test_a_refusal_is_echoed(server: Server):
    """Conversations of other servers have such messages."""
    said = {"role": "assistant", "content": None, "refusal": "I will not."}
    assert chat(server, messages=[*HELLO, said, {"role": "user", "content": "Why?"}]).choices


def test_content_comes_in_parts(server: Server):
    """One part is as good as a text; an image is refused in the last message, and left out of those before."""
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hello!"}]}]
    assert chat(server, messages=parts).choices[0].message.content == chat(server).choices[0].message.content
    two = [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "you!"}]}]
    assert chat(server, messages=two).usage.prompt_tokens > 0
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]}]
    with refused(openai.BadRequestError, param="messages"):
        chat(server, messages=image)
    answer = server.post("/v1/chat/completions", messages=[*image, *HELLO], max_tokens=2)
    assert answer.status_code == 200 and "image_url" in answer.headers["warning"], answer.text


def test_a_developer_is_the_system(server: Server):
    """The same prompt, the same answer."""
    said = [chat(server, messages=[{"role": role, "content": "Be kind."}, *HELLO]) for role in ("system", "developer")]
    assert said[0].choices[0].message.content == said[1].choices[0].message.content
    assert said[0].usage.prompt_tokens == said[1].usage.prompt_tokens


def test_fields_that_are_null_are_not_there(server: Server):
    """Clients in other languages send all fields that they have."""
    names = ["stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "stop", "temperature", "top_p", "presence_penalty"]
    names += ["frequency_penalty", "logit_bias", "seed", "logprobs", "top_logprobs", "response_format", "tools", "tool_choice"]
    names += ["parallel_tool_calls", "user", "metadata", "store"]
    wrong = [name for name in names if server.post("/v1/chat/completions", messages=HELLO, **{"max_tokens": 2, name: None}).status_code != 200]
    assert not wrong, f"null is refused for {wrong}"
    options = {"stream": True, "stream_options": {"include_usage": None}}
    assert server.post("/v1/chat/completions", messages=HELLO, max_tokens=2, **options).status_code == 200


def test_fields_for_the_books_are_taken(server: Server):
    """They mean nothing to the answer."""
    check_taken(server, user="me", metadata={"a": "b"}, store=True, safety_identifier="me", prompt_cache_key="k")


def test_fields_that_say_the_usual_are_taken(server: Server):
    """What they ask for is what this server does anyway."""
    check_taken(server, service_tier="auto", modalities=["text"], verbosity="low", reasoning_effort="low", prediction={"type": "content", "content": "x"})
    check_taken(server, prompt_cache_retention="24h", web_search_options={}, max_completion_tokens=-1, stop=" ")


def test_what_other_servers_take_is_taken(server: Server):
    """llama.cpp's, vLLM's and OpenRouter's fields; what changes nothing is told in a header."""
    fields = {"max_tokens": -1, "top_k": -1, "n_predict": 2, "repetition_penalty": 1.1, "cache_prompt": True, "id_slot": 0, "samplers": ["top_k"]}
    fields |= {"logit_bias": [[1, -1.5]], "seed": -1, "reasoning": {"effort": "low"}, "guided_choice": ["yes", "no"], "seeed": 1}
    answer = server.post("/v1/chat/completions", messages=HELLO, **fields)
    assert answer.status_code == 200 and answer.json()["choices"][0]["message"]["content"] in ("yes", "no"), answer.text
    told = answer.headers["warning"]
    assert "seeed" in told and "samplers changes nothing" in told and "top_k" not in told, told


def test_old_messages_are_taken_as_other_servers_wrote_them(server: Server):
    """Thoughts, ids, broken arguments, and functions in place of tools."""
    broken = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"where": '}}
    said = [{"role": "assistant", "content": None, "tool_calls": [broken], "reasoning": "hm", "reasoning_details": [], "id": "x", "annotations": [{}]}]
    said += [{"role": "tool", "tool_call_id": "1", "content": "bad JSON"}, {"role": "developer", "content": "Be kind."}, *HELLO]
    assert server.post("/v1/chat/completions", messages=[*HELLO, *said], max_tokens=2).status_code == 200
    functions = {"functions": [TOOLS[0]["function"]], "function_call": {"name": "find"}}
    answer = server.post("/v1/chat/completions", messages=HELLO, max_tokens=400, **functions).json()["choices"][0]
    assert answer["finish_reason"] == "function_call" and Place.model_validate_json(answer["message"]["function_call"]["arguments"]), answer


def test_a_format_beside_tools_leaves_a_choice(server: Server):
    """The answer is calls or a text of the format; tools of other types are left out."""
    for seed in range(4):
        tools = [*TOOLS, {"type": "web_search"}]
        message = chat(server, tools=tools, response_format=schema_format(Place.model_json_schema()), max_tokens=400, seed=seed).choices[0].message
        for text in [call.function.arguments for call in message.tool_calls or []] or [message.content]:
            assert Place.model_validate_json(text), message
    with refused(openai.BadRequestError, param="response_format"):
        chat(server, tools=TOOLS, extra_body={"grammar": 'root ::= "a"'})


def test_some_of_the_tools_may_be_allowed(server: Server):
    """As OpenAI's interface has it."""
    other = {"type": "function", "function": {"name": "other"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "find"}}]}}
    calls = chat(server, tools=[other, *TOOLS], tool_choice=choice, max_tokens=400).choices[0].message.tool_calls
    assert {call.function.name for call in calls} == {"find"}, calls


def test_a_call_that_was_cut_can_be_sent_back(server: Server):
    """Streamed and whole, nothing of it is text; ids differ from answer to answer."""
    fields = {"messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 14, "seed": 1}
    ids = set()
    for _ in range(2):
        choice = server.post("/v1/chat/completions", **fields).json()["choices"][0]
        assert choice["finish_reason"] == "length" and not choice["message"]["content"], choice
        (call,) = choice["message"]["tool_calls"]
        ids.add(call["id"])
    assert len(ids) == 2, ids
    parts = list(chat(server, **{**fields, "stream": True}))
    deltas = [part.choices[0].delta for part in parts]
    assert not any(delta.content for delta in deltas) and parts[-1].choices[0].finish_reason == "length", parts
    text = "".join(call.function.arguments for delta in deltas for call in delta.tool_calls or [])
    assert text == call["function"]["arguments"], (text, call)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "these arguments are no JSON"}]
    said = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, *results]
    assert server.post("/v1/chat/completions", messages=said, tools=TOOLS, max_tokens=8).status_code == 200


def test_tokens_are_counted(server: Server):
    """As many as the answer says."""
    said = [*HELLO, {"role": "assistant", "content": "Hi."}, *HELLO]
    counted = server.post("/v1/chat/completions/input_tokens", messages=said, tools=TOOLS).json()["input_tokens"]
    assert counted == chat(server, messages=said, tools=TOOLS).usage.prompt_tokens


def check_taken(server: Server, **fields):
    """Each of these fields may be there."""
    answers = {name: server.post("/v1/chat/completions", messages=HELLO, max_tokens=2, **{name: value}) for name, value in fields.items()}
    wrong = {name: answer.text for name, answer in answers.items() if answer.status_code != 200}
    assert not wrong, wrong


def test_text_goes_on(server: Server):
    """Prompts as a text, a list of texts, tokens, and lists of tokens."""
    client, model, ids = server.client(), server.model(), server.tokens("Once upon a time")
    for prompt, n in (("Once", 1), (["Once", "One day"], 2), (ids, 1), ([ids, ids[:1]], 2)):
        answer = client.completions.create(model=model, prompt=prompt, max_tokens=6, seed=1)
        assert answer.object == "text_completion" and [choice.index for choice in answer.choices] == list(range(n)), answer
        assert all(isinstance(choice.text, str) for choice in answer.choices) and answer.usage.completion_tokens <= 6 * n, answer
    twice = client.completions.create(model=model, prompt=["Once", "One day"], n=2, max_tokens=6)
    assert [choice.index for choice in twice.choices] == [0, 1, 2, 3], twice


def test_text_has_sixteen_tokens(server: Server):
    """That is the interface's default."""
    token = str(server.tokens("a")[-1])
    answer = server.client().completions.create(model=server.model(), prompt="Once", temperature=0, logit_bias={token: 100})
    assert answer.usage.completion_tokens == 16 and answer.choices[0].finish_reason == "length", answer


def text_with_logprobs(server: Server, **fields):
    fields = {"prompt": "Once", "max_tokens": 6, "temperature": 0, "logprobs": 3, **fields}
    choice = server.client().completions.create(model=server.model(), **fields).choices[0]
    return choice.text, choice.logprobs


def test_text_has_logprobs(server: Server):
    """Tokens that spell the text, with alternatives."""
    text, told = text_with_logprobs(server)
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(told.text_offset) > 0, told
    assert "".join(told.tokens) == text and all(0 < len(best) <= 4 for best in told.top_logprobs), (text, told)


def test_offsets_of_text_are_in_characters(server: Server):
    """A letter that has two bytes is one further."""
    single = next((ids for ids in map(server.tokens, "—’“…éöñ") if len(ids) == 1), server.tokens("é"))
    for bias in ({}, {str(single[-1]): 100}):
        told = text_with_logprobs(server, logit_bias=bias)[1]
        lengths = [len("".join(told.tokens[:i])) for i in range(len(told.tokens))]
        assert [offset - told.text_offset[0] for offset in told.text_offset] == lengths, told


def test_models_are_listed(server: Server):
    """At least one, and it can be asked for by its name."""
    models = list(server.client().models.list())
    assert models and models[0].object == "model" and models[0].owned_by and models[0].created > 0, models
    assert chat(server).model in [model.id for model in models]


def test_a_model_is_found(server: Server):
    """By its id; another is not."""
    client = server.client()
    assert client.models.retrieve(server.model()).id == server.model()
    with refused(openai.NotFoundError, code="model_not_found"):
        client.models.retrieve("gpt-0")


def test_the_only_model_answers_to_any_name(server: Server):
    """In chat and completions, under its own name."""
    client = server.client()
    assert client.chat.completions.create(model="gpt-0", messages=HELLO, max_tokens=1).model == server.model()
    assert client.completions.create(model="gpt-0", prompt="x", max_tokens=1).model == server.model()


def test_a_message_of_the_assistant_is_gone_on_with(server: Server):
    """Its beginning is the client's; the answer is the rest."""
    begun = [*HELLO, {"role": "assistant", "content": "Hello"}]
    rest = chat(server, messages=begun, extra_body={"continue_final_message": True}).choices[0].message.content
    assert rest and not rest.startswith("Hello"), rest
    with refused(openai.BadRequestError, param="continue_final_message"):
        chat(server, messages=HELLO, extra_body={"continue_final_message": True})


def test_a_refused_field_is_named(server: Server):
    """What is beyond its limits, or would change the answer."""
    wrong = [("n", 0), ("n", 1000), ("logit_bias", {"x": 1}), ("messages", [{"role": "cook", "content": ""}]), ("messages", [])]
    wrong += [("top_logprobs", 3), ("response_format", {"type": "xml"}), ("tool_choice", "required"), ("continue_final_message", True)]
    wrong += [("modalities", ["audio"]), ("guided_grammar", "x"), ("structured_outputs", {"structural_tag": {}})]
    check_named(server, wrong)


def test_a_setting_beyond_its_limits_is_named(server: Server):
    """Where it is the engine that refuses it, too."""
    check_named(server, [("logit_bias", {"99999999": 1}), ("stop", ""), ("temperature", -1), ("top_p", 2)])


def test_a_field_of_the_wrong_type_is_named(server: Server):
    """As OpenAI's server does."""
    check_named(server, [("temperature", "hot"), ("max_tokens", -2), ("n", "two"), ("stream", "yes"), ("seed", 1.5), ("messages", "Hello")])


def check_named(server: Server, wrong: list):
    """Each of these fields is a bad request, and named as the one at fault."""
    missed = []
    for name, value in wrong:
        answer = server.post("/v1/chat/completions", **{"messages": HELLO, "max_tokens": 2, name: value})
        error = answer.json().get("error", {})
        if (answer.status_code, error.get("param")) != (400, name):
            missed.append((name, value, answer.status_code, error.get("param"), error.get("message")))
    assert not missed, missed


def test_a_schema_that_cannot_be_is_refused(server: Server):
    """With the field that has it."""
    with refused(openai.BadRequestError, param="response_format"):
        chat(server, response_format=schema_format({"type": "fish"}))
    broken = tool("find")
    broken["function"]["parameters"] = {"type": "fish"}
    with refused(openai.BadRequestError, param="tools"):
        chat(server, tools=[broken], tool_choice="required")


def test_a_tool_that_is_not_there_is_refused(server: Server):
    """The choice is at fault, not the tools."""
    with refused(openai.BadRequestError, param="tool_choice"):
        chat(server, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "paint"}})


def test_messages_beyond_the_context_are_refused(server: Server):
    """With the code that clients look for."""
    with refused(openai.BadRequestError, code="context_length_exceeded", param="messages"):
        chat(server, messages=[{"role": "user", "content": "many words " * 5000}])


def test_a_prompt_beyond_the_context_is_refused(server: Server):
    """With the field that it came in."""
    with refused(openai.BadRequestError, code="context_length_exceeded", param="prompt"):
        server.client().completions.create(model=server.model(), prompt="many words " * 5000)


def test_a_body_beyond_the_limit_is_refused(server: Server):
    """Status 413, not a broken connection."""
    with refused(openai.APIStatusError, status_code=413):
        chat(server, messages=[{"role": "user", "content": "x" * (17 << 20)}])


def test_keys_are_asked_for(server: Server):
    """The right one gets in."""
    with server.another("--api-key", "right", "--api-key", "other") as closed:
        with refused(openai.AuthenticationError, code="invalid_api_key"):
            closed.client("wrong").models.list()
        with refused(openai.AuthenticationError):
            closed.client("wrong").chat.completions.create(model="x", messages=HELLO)
        assert list(closed.client("right").models.list()) and list(closed.client("other").models.list())


def test_a_full_queue_refuses(server: Server):
    """--queue 0: a request that finds all slots taken is refused at once, with a rate limit error."""
    with server.another("--queue", "0", "--parallel", "1", "-c", "4096") as small:
        fields = {"model": small.model(), "messages": HELLO, "response_format": LONG}
        with small.client().chat.completions.create(**fields, stream=True) as stream:
            next(chunk for chunk in stream if chunk.choices[0].delta.content)
            with refused(openai.RateLimitError, type="rate_limit_error"):
                small.client().with_options(timeout=10).chat.completions.create(**fields, max_tokens=2)


def test_a_queue_has_its_length(server: Server):
    """Of six requests at once, one is decoded, two wait in the queue, and the rest are refused."""
    with server.another("--queue", "2", "--parallel", "1", "-c", "4096") as small:
        fields, codes = {"messages": HELLO, "response_format": LONG, "max_tokens": 300}, []
        threads = [threading.Thread(target=lambda: codes.append(small.post("/v1/chat/completions", **fields))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refusals = [answer for answer in codes if answer.status_code == 429]
        assert len(codes) == 6 and 3 <= len(refusals) <= 4, [answer.status_code for answer in codes]
        assert all("retry-after" in answer.headers for answer in refusals)


def test_a_prompt_that_was_read_is_kept(server: Server):
    """The second of two equal ones has cached tokens, all but the last."""
    said = [{"role": "user", "content": f"Tell me of {time.time_ns()} small boats and of the harbour that they came from."}]
    first, second = chat(server, messages=said).usage, chat(server, messages=said).usage
    assert second.prompt_tokens_details.cached_tokens >= second.prompt_tokens - 1 > first.prompt_tokens_details.cached_tokens, (first, second)


def test_a_client_that_leaves_frees_its_job(server: Server):
    """Also where the answer is not a stream."""
    before = server.count("generated_tokens_total")
    with refused(openai.APITimeoutError):
        server.client().with_options(timeout=0.5).chat.completions.create(model=server.model(), messages=HELLO, response_format=LONG, n=8)
    wait_idle(server)
    assert server.count("generated_tokens_total") - before < 8 * 900, "the texts were written to their end"
