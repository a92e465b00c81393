"""Models, sessions and generations.

A `Model` answers requests in the JSON of OpenAI and llama.cpp, many at the same time. A `Session`
is one text whose tokens the program chooses, or lets the library choose. Both generate by
iterators, which are asynchronous iterators as well.
"""

from __future__ import annotations

import asyncio
import ctypes
import enum
import functools
import json
import os
import warnings
from typing import (
    Any,
    AsyncIterator,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from . import _native
from ._errors import AbsentError, InvalidError, RequestError, SuspendedError
from ._native import END, PATIENCE, PENDING, Handle, RawEvent, lib

T = TypeVar("T")

PROMPT, TEXT, TOKEN, NOTE, JSON, DONE = range(6)
_KINDS = ("prompt", "text", "token", "note", "json", "done")

#: A path of a file.
FilePath = Union[str, "os.PathLike[str]"]

Message = Dict[str, Any]
Json = Dict[str, Any]


async def _in_thread(function: Any, *arguments: Any) -> Any:
    """`asyncio.to_thread`, which Python 3.8 does not have."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, functools.partial(function, *arguments))


class Event(NamedTuple):
    """An event of a generation in a session."""

    #: "prompt", "text", "token", "note" or "done"; others may follow in later versions.
    kind: str
    #: The text; of a token its log-probabilities as JSON if asked for; of the end the summary.
    text: str
    #: The token.
    token: int
    #: Tokens so far.
    n_done: int
    #: Tokens in all.
    n_total: int


class Heat(enum.IntEnum):
    """How hot the machine is, as phones tell their apps. No text changes by it."""

    #: All threads compute.
    NOMINAL = 0
    #: Half of the threads.
    ELEVATED = 1
    #: A quarter of the threads, which rest after each step for as long as it took.
    CRITICAL = 2
    #: Nothing is generated until the level falls: iterators wait.
    EMERGENCY = 3


def _path(path: Optional[FilePath]) -> Optional[bytes]:
    return None if path is None else os.fsencode(path)


class _Owned:
    """A handle that is freed once."""

    _kind = ""
    _handle: Optional[Handle] = None

    def close(self) -> None:
        """Frees it; further use raises `ValueError`."""
        handle, self._handle = self._handle, None
        if handle is not None:
            getattr(lib, f"atta_{self._kind}_free")(handle)

    def _open(self) -> Handle:
        if self._handle is None:
            raise InvalidError(f"this {self._kind} is closed")
        return self._handle

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class _Events(_Owned):
    """The events of a generation or response."""

    _kind = "generation"

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._event = RawEvent()

    def next_event(self) -> Optional[Event]:
        """The next event; `None` behind the last one. Ctrl-C is seen while it waits."""
        event = self._event
        while True:
            if self._handle is None:
                return None
            status = lib.atta_next_within(
                self._handle, PATIENCE, ctypes.byref(event), ctypes.sizeof(event)
            )
            if status == END:
                return None
            if status != PENDING:
                break
        _native.check(status)
        kind = _KINDS[event.kind] if event.kind < len(_KINDS) else "unknown"
        text = ctypes.string_at(event.text, event.text_size).decode("utf-8", "replace")
        return Event(kind, text, event.token, event.n_done, event.n_total)

    def cancel(self) -> None:
        """Ends it early, from any thread."""
        if self._handle is not None:
            lib.atta_cancel(self._handle)


class _Stream(Generic[T]):
    """An iterator, and asynchronous iterator, over what a generation yields."""

    def __init__(self, events: _Events) -> None:
        self._events = events

    def cancel(self) -> None:
        """Ends it early, from any thread."""
        self._events.cancel()

    def close(self) -> None:
        """Ends it, and frees what it holds."""
        self._events.close()

    def _step(self) -> T:
        raise NotImplementedError

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._step()
        except SuspendedError:
            # It goes on when it is resumed.
            raise
        except BaseException:
            # The end, an error, or Ctrl-C.
            self.close()
            raise

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        step = asyncio.ensure_future(_in_thread(self._step_or_none))
        try:
            item = await asyncio.shield(step)
        except asyncio.CancelledError:
            self.cancel()
            await asyncio.wait([step])
            self.close()
            raise
        if item is None:
            raise StopAsyncIteration
        return item

    def _step_or_none(self) -> Optional[T]:
        # StopIteration does not pass through a future.
        try:
            return next(self)
        except StopIteration:
            return None

    def __enter__(self: Any) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Responses(_Stream[Json]):
    """The events of a streamed response."""

    def _step(self) -> Json:
        while True:
            event = self._events.next_event()
            if event is None or event.kind == "done":
                raise StopIteration
            if event.kind == "note":
                warnings.warn(event.text, stacklevel=3)
            if event.kind == "json":
                value = json.loads(event.text)
                if isinstance(value, dict) and isinstance(value.get("error"), dict):
                    raise RequestError(value["error"].get("message", event.text))
                return value


class Generation(_Stream[Event]):
    """The events of a text in a session. The session is busy until it has ended or is closed."""

    #: How it went, once it has ended: `finish_reason`, `n_generated`, times.
    summary: Optional[Json] = None

    def _step(self) -> Event:
        event = self._events.next_event()
        if event is None:
            raise StopIteration
        if event.kind == "note":
            warnings.warn(event.text, stacklevel=3)
        if event.kind == "done":
            self.summary = json.loads(event.text)
        return event

    def suspend(self, path: Optional[FilePath] = None) -> None:
        """Frees the memory of the session's state between two events, as `Session.suspend`."""
        _native.call("generation_suspend", self._events._open(), _path(path))

    def resume(self) -> None:
        """Restores the state: the text goes on with the same bits."""
        _native.call("generation_resume", self._events._open())

    def texts(self) -> Iterator[str]:
        """The pieces of the text."""
        return (event.text for event in self if event.kind == "text")

    def tokens(self) -> Iterator[int]:
        """The tokens of the text."""
        return (event.token for event in self if event.kind == "token")


class Sampler(_Owned):
    """Chooses tokens from the logits of sessions."""

    _kind = "sampler"

    def __init__(self, model: "Model", **fields: Any) -> None:
        self._handle = _native.made("sampler_new", model._open(), *_body(fields))

    def sample(self, session: "Session") -> int:
        """The next token of a session's text; it is not appended."""
        token = ctypes.c_uint32()
        _native.call("sampler_sample", self._open(), session._open(), ctypes.byref(token))
        return token.value

    def choose(self, logits: Any, tokens: Sequence[int] = ()) -> int:
        """A token by logits of the program, [n_vocab], behind the tokens of a text."""
        token = ctypes.c_uint32()
        floats = _native.float_arguments(logits)
        ids = _native.token_arguments(tokens)
        _native.call("sampler_choose", self._open(), *floats, *ids, ctypes.byref(token))
        return token.value


def _body(fields: Any) -> Any:
    try:
        return _native.text_arguments(json.dumps(fields))
    except (TypeError, ValueError) as error:
        raise InvalidError(f"this cannot be JSON: {error}") from error


class Session(_Owned):
    """One text with its KV cache. One thread at a time may use it."""

    _kind = "session"

    def __init__(
        self,
        model: "Model",
        *,
        ctx: Optional[int] = None,
        batch: Optional[int] = None,
        keep: Optional[int] = None,
        kv: Optional[str] = None,
    ) -> None:
        options = _native.options({"ctx": ctx, "batch": batch, "keep": keep, "kv": kv})
        try:
            self._handle = _native.made("session_new", model._open(), options)
        finally:
            lib.atta_options_free(options)
        self._model = model

    @property
    def tokens(self) -> List[int]:
        """The tokens of the text."""
        return _native.buffer("session_tokens", self._open()).tokens()

    @property
    def logits(self) -> Any:
        """The logits after the last token, [n_vocab]: an array of numpy if there is numpy."""
        found = _native.buffer("session_logits", self._open())
        return found.floats((self._model.n_vocab,))

    def append(self, tokens: Sequence[int]) -> None:
        """Appends tokens to the text, and evaluates them."""
        _native.call("session_append", self._open(), *_native.token_arguments(tokens))

    def append_all(self, tokens: Sequence[int]) -> Any:
        """As `append`; returns the logits after each of the tokens, [n_tokens, n_vocab]."""
        pointer, n = _native.token_arguments(tokens)
        found = _native.buffer("session_append_all", self._open(), pointer, n)
        return found.floats((n, self._model.n_vocab))

    def truncate(self, n: int) -> int:
        """Removes all tokens from the `n`th on, and returns how many are left."""
        n_left = ctypes.c_size_t()
        _native.call("session_truncate", self._open(), n, ctypes.byref(n_left))
        return n_left.value

    def save(self) -> bytes:
        """The text and its KV cache, for `load`."""
        return _native.buffer("session_save", self._open()).bytes()

    def load(self, state: bytes) -> None:
        """Replaces the text by one that `save` returned, of the same model and version."""
        _native.call("session_load", self._open(), bytes(state), len(state))

    def set_lora(self, adapters: Sequence[Json]) -> None:
        """Sets the LoRA adapters among the model's: `{"name": …, "scale": …}`, in order. With
        others than before the session becomes empty."""
        _native.call("session_set_lora", self._open(), *_body(list(adapters)))

    def suspend(self, path: Optional[FilePath] = None) -> None:
        """Frees the memory of the state until `resume`; what needs it raises `SuspendedError`
        meanwhile. The state is kept in the file, or the text is evaluated again without one. A
        later process may give the bytes of the file to `load`."""
        _native.call("session_suspend", self._open(), _path(path))

    def resume(self) -> None:
        """Restores the state, and removes its file: the text goes on with the same bits."""
        _native.call("session_resume", self._open())

    def generate(
        self, prompt: Union[None, str, Sequence[int]] = None, **fields: Any
    ) -> Generation:
        """Generates text behind a prompt, or goes on with the text. The fields are llama.cpp's:
        `max_tokens`, `temperature`, `top_k`, `stop`, `grammar`, `seed` and others."""
        if prompt is not None:
            fields["prompt"] = prompt if isinstance(prompt, str) else [int(id) for id in prompt]
        return Generation(_Events(_native.made("generate", self._open(), *_body(fields))))


class Model(_Owned):
    """A loaded model. Any number of threads may use it."""

    _kind = "model"

    def __init__(
        self,
        path: FilePath,
        *,
        ctx: Optional[int] = None,
        batch: Optional[int] = None,
        keep: Optional[int] = None,
        kv: Optional[str] = None,
        threads: Optional[int] = None,
        parallel: Optional[int] = None,
        weights: Optional[str] = None,
        ram_budget: Optional[int] = None,
        quality: Optional[float] = None,
        experts: Optional[int] = None,
        isa: Optional[str] = None,
        chat_template: Optional[str] = None,
        name: Optional[str] = None,
        lora: Sequence[Json] = (),
        verify: bool = False,
        prewarm: bool = False,
        shrink: bool = False,
    ) -> None:
        given = dict(locals())
        skipped = ("self", "path", "lora", "verify", "prewarm", "shrink")
        values = {name: value for name, value in given.items() if name not in skipped}
        if lora:
            values["lora"] = json.dumps([{**one, "path": os.fspath(one["path"])} for one in lora])
        switches = {"verify": verify, "prewarm": prewarm, "shrink": shrink}
        values.update({name: True for name, is_on in switches.items() if is_on})
        options = _native.options(values)
        try:
            self._handle = _native.made("model_open", os.fsencode(path), options)
        finally:
            lib.atta_options_free(options)
        self.n_vocab = self._number("n_vocab")

    def _number(self, name: str) -> int:
        number = ctypes.c_uint64()
        _native.call("model_number", self._open(), name.encode(), ctypes.byref(number))
        return number.value

    def number(self, name: str) -> Optional[int]:
        """A number of the model, such as "n_layers" or "token_eos"; `None` if it has none."""
        try:
            return self._number(name)
        except AbsentError:
            return None

    def text(self, name: str) -> Optional[str]:
        """A text of the model, or a value of its file's metadata; `None` if it has none."""
        try:
            return _native.buffer("model_text", self._open(), name.encode()).text()
        except AbsentError:
            return None

    @property
    def name(self) -> str:
        """The name in responses."""
        return self.text("name") or ""

    @property
    def metadata(self) -> Json:
        """The metadata of the file, without arrays."""
        return json.loads(self.text("metadata") or "{}")

    def suspend(self) -> None:
        """Frees the KV cache of requests, which the next one makes again. `BusyError` while a
        request is not over; sessions are suspended by `Session.suspend`."""
        _native.call("model_suspend", self._open())

    @property
    def heat(self) -> Heat:
        """How hot the machine is, as was said last."""
        return Heat(self._number("heat"))

    @heat.setter
    def heat(self, heat: Heat) -> None:
        _native.call("model_set_heat", self._open(), int(heat))

    def tokenize(
        self, text: Union[str, bytes], *, special: bool = False, bos: bool = False
    ) -> List[int]:
        """The tokens of a text. `special` parses the texts of special tokens, `bos` puts
        begin-of-sequence in front if the model wants it."""
        flags = int(special) | int(bos) << 1
        found = _native.buffer("tokenize", self._open(), *_native.text_arguments(text), flags)
        return found.tokens()

    def detokenize(
        self, tokens: Sequence[int], *, special: bool = False, goes_on: bool = False
    ) -> bytes:
        """The text of tokens, in bytes that may end inside a character. `goes_on`: it continues
        another text, whose space stays."""
        flags = int(special) | int(goes_on) << 1
        arguments = _native.token_arguments(tokens)
        return _native.buffer("detokenize", self._open(), *arguments, flags).bytes()

    def session(self, **options: Any) -> Session:
        """A session; the options are `ctx`, `batch`, `keep` and `kv`."""
        return Session(self, **options)

    def sampler(self, **fields: Any) -> Sampler:
        """A sampler, with llama.cpp's fields."""
        return Sampler(self, **fields)

    def stream(self, path: str, body: Json) -> Responses:
        """Sends a request to a path of `atta serve`, and iterates over the events of its
        response."""
        handle = _native.made("request", self._open(), path.encode(), *_body(body))
        return Responses(_Events(handle))

    def request(self, path: str, body: Json) -> Json:
        """Sends a request to a path of `atta serve`, such as "/v1/chat/completions"."""
        with self.stream(path, body) as responses:
            return next(responses)

    async def arequest(self, path: str, body: Json) -> Json:
        """As `request`; cancelling the task cancels the request."""
        with self.stream(path, body) as responses:
            async for response in responses:
                return response
        raise RequestError("no response")

    def chat(self, messages: Iterable[Message], **fields: Any) -> Json:
        """The answer to a conversation: OpenAI's chat completion."""
        return self.request("/v1/chat/completions", {"messages": list(messages), **fields})

    def chat_stream(self, messages: Iterable[Message], **fields: Any) -> Responses:
        """As `chat`, in chunks; also for `async for`."""
        body = {"messages": list(messages), **fields, "stream": True}
        return self.stream("/v1/chat/completions", body)

    def embed(self, texts: Union[str, Sequence[str]], **fields: Any) -> List[List[float]]:
        """The vectors of texts, each of length 1."""
        inputs = [texts] if isinstance(texts, str) else list(texts)
        found = self.request("/v1/embeddings", {"input": inputs, **fields})
        return [item["embedding"] for item in found["data"]]
