"""OpenAI's client for Python: answers that come token by token, one and many at once."""

import asyncio
import json
import time

import httpx
import openai

from openai_chat import TOOLS, Cart, Place
from serving import HELLO, LONG, Server, chat, events, refused, wait_idle

SYSTEM_TOKENS = 1000


def chunks(server: Server, **fields) -> list:
    return list(chat(server, stream=True, **fields))


def text_of(parts: list, index=0) -> str:
    choices = [choice for part in parts for choice in part.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def test_a_stream_has_its_order(server: Server):
    """The role, texts, the reason, the usage."""
    parts = chunks(server, stream_options={"include_usage": True})
    assert len({(part.id, part.created, part.model, part.object) for part in parts}) == 1, parts
    assert parts[0].object == "chat.completion.chunk" and parts[0].choices[0].delta.role == "assistant", parts[0]
    assert all(part.choices[0].delta.role is None for part in parts[1:-1]), "the role comes once"
    reasons = [part.choices[0].finish_reason for part in parts[:-1]]
    assert reasons[-1] in ("stop", "length") and not any(reasons[:-1]), reasons
    assert parts[-1].choices == [] and parts[-1].usage.completion_tokens > 0, parts[-1]
    assert all(part.usage is None for part in parts[:-1])


def test_usage_comes_only_when_asked_for(server: Server):
    """Old clients index choices[0] of every chunk."""
    assert all(part.choices and part.usage is None for part in chunks(server))


def test_a_stream_ends_with_done(server: Server):
    """On the wire: events, [DONE] behind the last, nothing that a proxy would hold back."""
    answer = server.post("/v1/chat/completions", messages=HELLO, max_tokens=4, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream") and answer.headers.get("cache-control") == "no-cache"
    data = events(answer)
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1, data[-3:]
    parts = [json.loads(one) for one in data[:-1]]
    assert all("usage" in part and part["usage"] is None for part in parts[:-1]) and parts[-1]["usage"]["total_tokens"] > 0


def test_a_stream_says_what_the_whole_says(server: Server):
    """With the same seed, text and usage are the same."""
    fields = {"temperature": 0.7, "seed": 5, "max_tokens": 60}
    parts, whole = chunks(server, **fields, stream_options={"include_usage": True}), chat(server, **fields)
    assert text_of(parts) == whole.choices[0].message.content
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_several_answers_stream_together(server: Server):
    """Each with its index, role and reason."""
    fields = {"temperature": 0.7, "n": 3}
    parts, whole = chunks(server, **fields), chat(server, **fields)
    for i in range(3):
        mine = [choice for part in parts for choice in part.choices if choice.index == i]
        assert mine[0].delta.role == "assistant" and sum(choice.finish_reason is not None for choice in mine) == 1, mine
        assert text_of(parts, i) == whole.choices[i].message.content


def test_logprobs_stream(server: Server):
    """The same entries as those of the whole."""
    fields = {"temperature": 0, "logprobs": True, "top_logprobs": 2}
    parts, whole = chunks(server, **fields), chat(server, **fields)
    streamed = [entry for part in parts if part.choices[0].logprobs for entry in part.choices[0].logprobs.content]
    assert streamed == whole.choices[0].logprobs.content


def test_logprobs_come_with_their_text(server: Server):
    """A client shows a piece with what the model thought of it."""
    parts = chunks(server, logprobs=True)
    bare = [part.choices[0].delta.content for part in parts if part.choices[0].delta.content and not part.choices[0].logprobs]
    assert not bare, bare


def test_a_stream_stops_before_its_stop(server: Server):
    """No piece of a stop text gets out."""
    whole = chat(server, temperature=0).choices[0].message.content
    stop = whole[len(whole) // 2 :][:5]
    assert text_of(chunks(server, temperature=0, stop=stop)) == whole.split(stop)[0]


def test_characters_come_whole(server: Server):
    """However many tokens one of them takes."""
    said = "Grüße, βøñ 🙂🚲 — 漢字"
    shape = {"type": "json_schema", "json_schema": {"name": "said", "schema": {"const": said}}}
    parts = chunks(server, response_format=shape, max_tokens=200)
    assert json.loads(text_of(parts)) == said and not any("\ufffd" in text_of([part]) for part in parts), text_of(parts)


def test_calls_stream(server: Server):
    """An id and a name first, then pieces of arguments, which make what the whole has."""
    fields = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 400}
    parts, whole = chunks(server, **fields), chat(server, **fields)
    calls: dict[int, dict] = {}
    for delta in (delta for part in parts for delta in part.choices[0].delta.tool_calls or []):
        call = calls.setdefault(delta.index, {"id": delta.id, "name": delta.function.name, "type": delta.type, "arguments": ""})
        assert call["id"] and call["name"] and call["type"] == "function", delta
        call["arguments"] += delta.function.arguments or ""
    told = [(call.function.name, json.loads(call.function.arguments)) for call in whole.choices[0].message.tool_calls]
    assert list(calls) == list(range(len(told))), calls
    assert [(call["name"], json.loads(call["arguments"])) for call in calls.values()] == told
    assert all(Place.model_validate_json(call["arguments"]) for call in calls.values())
    assert [part.choices[0].finish_reason for part in parts][-1] == "tool_calls"


def test_the_clients_stream_helper_collects(server: Server):
    """A model of pydantic, and tools, from events of the client's own."""
    completions, fields = server.client().chat.completions, {"model": server.model(), "messages": HELLO, "max_tokens": 400}
    with completions.stream(**fields, response_format=Cart) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Cart)
    with completions.stream(**fields, tools=[openai.pydantic_function_tool(Place)], tool_choice="required") as stream:
        kinds = [event.type for event in stream]
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert "tool_calls.function.arguments.done" in kinds and isinstance(call.function.parsed_arguments, Place), kinds


def test_text_streams(server: Server):
    """Completions: the same text as the whole; usage last, and null before."""
    fields = {"model": server.model(), "prompt": ["Once", "One day"], "max_tokens": 12, "seed": 3, "temperature": 0.7}
    client = server.client()
    parts, whole = list(client.completions.create(**fields, stream=True)), client.completions.create(**fields)
    for i in range(2):
        mine = [choice for part in parts for choice in part.choices if choice.index == i]
        assert "".join(choice.text for choice in mine) == whole.choices[i].text and mine[-1].finish_reason, mine


def test_text_streams_with_usage(server: Server):
    """Null in all chunks but the last."""
    answer = server.post("/v1/completions", prompt="Once", max_tokens=3, stream=True, stream_options={"include_usage": True})
    parts = [json.loads(one) for one in events(answer)[:-1]]
    assert parts[-1]["usage"]["completion_tokens"] > 0 and parts[-1]["choices"] == [], parts[-1]
    assert all("usage" in part and part["usage"] is None for part in parts[:-1]), parts[0]


def test_a_wrong_request_is_refused_before_the_stream(server: Server):
    """As an error with its status, not as an event."""
    with refused(openai.BadRequestError, code="context_length_exceeded"):
        chat(server, messages=[{"role": "user", "content": "many words " * 5000}], stream=True)


def test_closing_a_stream_frees_its_jobs(server: Server):
    """Eight texts that would have been long end soon."""
    before = server.count("generated_tokens_total")
    stream = chat(server, stream=True, response_format=LONG, n=8, max_tokens=None)
    next(part for part in stream if part.choices[0].delta.content)
    assert server.count("jobs_running") == 8
    stream.close()
    wait_idle(server)
    assert server.count("generated_tokens_total") - before < 8 * 900, "the texts were written to their end"


async def streamed(client: openai.AsyncOpenAI, model: str, seed: int, messages=HELLO) -> str:
    fields = {"model": model, "messages": messages, "seed": seed, "temperature": 0.7, "max_tokens": 40}
    return text_of([part async for part in await client.chat.completions.create(**fields, stream=True)])


async def all_streamed(server: Server, conversations: list) -> list[str]:
    model = server.model()
    async with server.async_client() as client:
        return await asyncio.gather(*(streamed(client, model, i, messages) for i, messages in enumerate(conversations)))


def test_twenty_streams_at_once_are_as_if_alone(server: Server):
    """Each stream equals, byte for byte, the stream of the same request alone."""
    together = asyncio.run(all_streamed(server, [HELLO] * 20))
    alone = [chat(server, seed=seed, temperature=0.7, max_tokens=40).choices[0].message.content for seed in range(20)]
    assert together == alone
    wait_idle(server)


def system_prompt(server: Server) -> str:
    """A system prompt of about 1,000 tokens that no request had before."""
    text = f"Rules of {time.time_ns()}: "
    while len(server.tokens(text)) < SYSTEM_TOKENS:
        text += "never open the door of the old mill in the evening, and be kind to the donkey. " * 5
    return text


def test_a_shared_system_prompt_is_read_once(server: Server):
    """By sixteen users who come at the same time."""
    system = system_prompt(server)
    conversations = [[{"role": "system", "content": system}, {"role": "user", "content": f"I am number {i}."}] for i in range(16)]
    before = server.metrics()
    answers = asyncio.run(all_streamed(server, conversations))
    after = server.metrics()
    read, reused = (after[f"atta_prompt_tokens{kind}_total"] - before[f"atta_prompt_tokens{kind}_total"] for kind in ("", "_reused"))
    assert len(answers) == 16 and read < 1.8 * SYSTEM_TOKENS and reused > 14 * SYSTEM_TOKENS, (read, reused)


def test_streams_come_as_they_are_written(server: Server):
    """The first piece is there long before the last."""
    fields = {"messages": HELLO, "response_format": LONG, "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{server.api}/chat/completions", json=fields, timeout=60) as answer:
        start = time.monotonic()
        times = [time.monotonic() - start for line in answer.iter_lines() if '"content":"' in line]
    assert times[1] < times[-1] / 3, (times[1], times[-1])
