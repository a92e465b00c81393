"""OpenAI's client for Python: texts as vectors."""

import base64
import math
import struct
import threading

import openai

from serving import HELLO, Server, chat, refused, wait_until

TEXTS = ["The lamp in the kitchen is on.", "Somebody has switched the kitchen light on.", "Näher, мой 友!", "a"]


def embed(server: Server, given, **fields):
    fields = {"encoding_format": "float", **fields}
    return server.client().embeddings.create(model=server.model(), input=given, **fields)


def vectors(server: Server, given, **fields) -> list[list[float]]:
    return [one.embedding for one in embed(server, given, **fields).data]


def bits(vector: list[float]) -> bytes:
    """As f32, little-endian."""
    return struct.pack(f"<{len(vector)}f", *vector)


def tokens(server: Server, text: str) -> list[int]:
    return server.post("/tokenize", content=text, add_special=True).json()["tokens"]


def test_embeddings_have_the_fields_of_the_interface(server: Server):
    """One for each text, in their order, of length 1."""
    answer = embed(server, TEXTS)
    assert answer.object == "list" and answer.model == server.model(), answer
    assert [(one.object, one.index) for one in answer.data] == [("embedding", i) for i in range(len(TEXTS))]
    assert len({len(one.embedding) for one in answer.data}) == 1
    for one in answer.data:
        assert abs(math.sqrt(sum(x * x for x in one.embedding)) - 1) < 1e-5, one
    usage = answer.usage
    assert usage.prompt_tokens == usage.total_tokens == sum(len(tokens(server, text)) for text in TEXTS), usage


def test_base64_is_the_same_as_numbers(server: Server):
    """What the client decodes by itself, and what we decode."""
    numbers = [bits(one) for one in vectors(server, TEXTS)]
    by_client = server.client().embeddings.create(model=server.model(), input=TEXTS)
    assert [bits(one.embedding) for one in by_client.data] == numbers
    raw = server.post("/v1/embeddings", input=TEXTS, encoding_format="base64").json()
    assert [base64.b64decode(one["embedding"]) for one in raw["data"]] == numbers


def test_a_list_is_what_each_text_is_alone(server: Server):
    """To the last bit, by every pooling."""
    for pooling in ("mean", "last", "cls"):
        extra = {"extra_body": {"pooling": pooling}}
        alone = [bits(vectors(server, text, **extra)[0]) for text in TEXTS]
        assert [bits(one) for one in vectors(server, TEXTS, **extra)] == alone, pooling
        assert [bits(one) for one in vectors(server, TEXTS[::-1], **extra)] == alone[::-1], pooling


def test_tokens_are_as_good_as_their_text(server: Server):
    """One list, and a list of lists."""
    ids = [tokens(server, text) for text in TEXTS]
    expected = vectors(server, TEXTS)
    assert vectors(server, ids) == expected
    assert vectors(server, ids[0]) == expected[:1]


def test_poolings_differ_and_the_server_has_one(server: Server):
    """Where a request does not say."""
    by_name = {name: vectors(server, TEXTS[:1], extra_body={"pooling": name})[0] for name in ("mean", "last", "cls")}
    assert len({bits(vector) for vector in by_name.values()}) == 3
    assert vectors(server, TEXTS[:1])[0] == by_name["last"]
    with server.another("--pooling", "mean") as other:
        assert vectors(other, TEXTS[:1])[0] == by_name["mean"]


def test_a_long_text_is_read_in_chunks(server: Server):
    """As long as the context; a token more is too long."""
    ids = (tokens(server, " ".join(TEXTS)) * 4096)[:4096]
    for pooling in ("mean", "last"):
        answer = embed(server, ids, extra_body={"pooling": pooling})
        assert answer.usage.prompt_tokens == 4096 and len(answer.data) == 1, answer.usage
    with refused(openai.BadRequestError, param="input", code="context_length_exceeded"):
        embed(server, ids + ids[:1])


def test_many_texts_at_once(server: Server):
    """The most texts of a request; each embedding has its index."""
    texts = [f"{i}" for i in range(2048)]
    answer = embed(server, texts, encoding_format="base64")
    assert [one.index for one in answer.data] == list(range(2048))
    assert base64.b64decode(answer.data[1234].embedding) == bits(vectors(server, texts[1234])[0])
    with refused(openai.BadRequestError, param="input"):
        embed(server, [*texts, "one more"])


def test_beside_a_running_stream_both_are_as_alone(server: Server):
    """The stream goes on, and says what it would have said."""
    words = {"max_tokens": 200, "temperature": 0, "seed": 1}
    expected = [bits(one) for one in vectors(server, TEXTS * 8)]
    alone = chat(server, HELLO, **words).choices[0].message.content
    said = []

    def listen():
        for chunk in chat(server, HELLO, stream=True, **words):
            said.extend(choice.delta.content or "" for choice in chunk.choices)

    listener = threading.Thread(target=listen)
    listener.start()
    wait_until(lambda: said, "a text begins")
    assert [bits(one) for one in vectors(server, TEXTS * 8)] == expected
    listener.join()
    assert "".join(said) == alone


def test_what_cannot_be_embedded_is_refused(server: Server):
    """By the name of the field."""
    for given in ("", [], ["a", ""], [[]], [2**31]):
        with refused(openai.BadRequestError, param="input"):
            embed(server, given)
    n = len(vectors(server, "a")[0])
    assert len(vectors(server, "a", dimensions=n, user="somebody")[0]) == n
    with refused(openai.BadRequestError, param="dimensions"):
        embed(server, "a", dimensions=n - 1)
    with refused(openai.BadRequestError, param="encoding_format"):
        embed(server, "a", encoding_format="binary")
    with refused(openai.BadRequestError, param="pooling"):
        embed(server, "a", extra_body={"pooling": "rank"})
