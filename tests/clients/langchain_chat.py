"""LangChain's chat model for servers with OpenAI's interface."""

import asyncio
import os

from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from openai_chat import Cart, Colour
from serving import Server

os.environ["LANGSMITH_TRACING"] = "false"
SAID = [SystemMessage("You are brief."), HumanMessage("Hello!")]


@tool
def paint(colour: Colour, is_wet: bool) -> str:
    """Paints the cart."""
    return f"{colour.value}, {'wet' if is_wet else 'dry'}"


def model(server: Server, **options) -> ChatOpenAI:
    options = {"temperature": 0.7, "seed": 1, "max_tokens": 40, **options}
    return ChatOpenAI(model=server.model(), base_url=server.api, api_key="none", max_retries=0, timeout=60, **options)


def test_invoke(server: Server):
    """A message with its usage and reason."""
    message = model(server).invoke(SAID)
    assert isinstance(message.content, str) and message.usage_metadata["output_tokens"] > 0, message
    assert message.response_metadata["finish_reason"] in ("stop", "length"), message


def test_stream_adds_up(server: Server):
    """Chunks make the message that invoke gives, with usage at the end."""
    chat = model(server, stream_usage=True)
    whole = sum(chat.stream(SAID), AIMessageChunk(content=""))
    told = chat.invoke(SAID)
    assert whole.content == told.content and whole.usage_metadata["output_tokens"] == told.usage_metadata["output_tokens"], whole


def test_astream_and_abatch(server: Server):
    """The same without threads."""
    async def both():
        chat = model(server)
        text = "".join([part.content async for part in chat.astream(SAID)])
        return text, await chat.abatch([SAID] * 4)

    text, answers = asyncio.run(both())
    assert [answer.content for answer in answers] == [text] * 4


def test_a_tool_is_called_and_its_result_taken(server: Server):
    """A turn of an agent: call, result, answer."""
    chat = model(server, max_tokens=400)
    message = chat.bind_tools([paint], tool_choice="any").invoke(SAID)
    assert message.tool_calls and not message.invalid_tool_calls, message
    results = [paint.invoke({**call, "type": "tool_call"}) for call in message.tool_calls]
    assert all(isinstance(result, ToolMessage) for result in results)
    answer = chat.bind_tools([paint], tool_choice="none").invoke([*SAID, message, *results])
    assert isinstance(answer.content, str) and not answer.tool_calls, answer


def test_a_streamed_tool_call_adds_up(server: Server):
    """By its name, strict, one only."""
    bound = model(server, max_tokens=400).bind_tools([paint], tool_choice="paint", strict=True, parallel_tool_calls=False)
    whole = sum(bound.stream(SAID), AIMessageChunk(content=""))
    (call,) = whole.tool_calls
    assert call["name"] == "paint" and set(call["args"]) == {"colour", "is_wet"}, call


def test_structured_output_by_schema(server: Server):
    """response_format."""
    assert isinstance(model(server, max_tokens=400).with_structured_output(Cart, method="json_schema").invoke(SAID), Cart)


def test_structured_output_by_tool(server: Server):
    """A tool that must be called."""
    assert isinstance(model(server, max_tokens=400).with_structured_output(Cart, method="function_calling").invoke(SAID), Cart)


def test_structured_output_streams(server: Server):
    """The last thing that comes is the model."""
    parts = list(model(server, max_tokens=400).with_structured_output(Cart, method="json_schema").stream(SAID))
    assert isinstance(parts[-1], Cart), parts
