"""Makes the conversations and stories, the tokenizer and the model, from nothing, with fixed seeds.

    python tools/builtin-model/home/train.py --out DIR --minutes 60 [--device cuda|cpu] [--conversations 120000] [--stories 30000]

Writes into DIR: tokenizer.json, model.pt (config and weights), log.jsonl. The learning rate follows the clock, so that
the time given is the time used; two runs of the same length differ only as far as the machine's speed differs.
"""

import argparse
import itertools
import json
import random
import re
import sys
import time
from collections import Counter
from functools import cache, partial
from multiprocessing import Pool
from pathlib import Path

import jinja2
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import chat
import compose
import generate

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
import loop  # noqa: E402
from choose import Choice  # noqa: E402
from model import Config  # noqa: E402

# The pre-tokenizer that GGUF calls `qwen2`: words with the mark or space in front of them, single digits, runs of marks.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What merges are learned from: the same, with words alone.
BARE_WORDS = WORDS.replace(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"_?\p{L}+")
N_SPACED = 400
N_HELD_OUT = 400
HABITS = {"usual": compose.USUAL, "hard": compose.HARD}
SHAPE = Config(n_vocab=3072, n_ctx=1024, n_layers=7, d_ff=640)


def story_start(story, rng):
    """A few stories begin in the middle or in lower case, so that any prompt finds its continuation."""
    if rng.random() < 0.08:
        sentences = story.split(". ")
        story = ". ".join(sentences[rng.randrange(0, max(1, len(sentences) // 2)) :])
        story = story[0].upper() + story[1:]
    return story[0].lower() + story[1:] if rng.random() < 0.02 else story


def written_conversation(habits, n):
    """What is learned from is of those habits, which may be harder than what is held out."""
    return chat.pieces(*compose.conversation(n, habits if n >= N_HELD_OUT else compose.USUAL))


def written_story(n):
    return [(chat.BEGIN, 0), (story_start(generate.story(n), random.Random(n)) + chat.END, chat.REPORT_WEIGHT)]


def first_words(conversations):
    """How often each word begins a text that is an argument of a call."""
    counts = Counter()
    for _, messages in conversations:
        for call in (call for message in messages for call in message.get("tool_calls", [])):
            for value in call["arguments"].values():
                counts.update(text.split(" ")[0] for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))
    return counts


def pre_tokenizer(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def make_tokenizer(texts, conversations, n_vocab):
    """Byte-level BPE, nothing normalized: what GGUF calls tokenizer `gpt2`.

    A value has to be copied from the middle of a sentence, where a space is in front of it, to between two quotes. So that
    it consists of the same tokens here and there, a space is a token of its own, but in front of the most frequent words
    that no value begins with.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(BARE_WORDS)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab - N_SPACED, special_tokens=chat.SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = pre_tokenizer(WORDS)
    begins, spaced = first_words(conversations), Counter(word for text in texts for word in re.findall(r"(?<= )[A-Za-z]+", text))
    as_json = json.loads(tokenizer.to_str())
    vocab, merges = as_json["model"]["vocab"], as_json["model"]["merges"]
    usual = (word for word, n in spaced.most_common() if word in vocab and begins[word] * 200 < n)
    for word in itertools.islice(usual, N_SPACED):
        vocab["Ġ" + word] = len(vocab)
        merges.append(["Ġ", word])
    return Tokenizer.from_str(json.dumps(as_json))


def encoded(tokenizer_file, n_ctx, write, n):
    """Ids and weights of the text that `write` makes of that number.

    The first word of an answer counts like a call: it is where the model decides for words.
    """
    tokenizer, ids, weights = loaded(tokenizer_file), [], []
    for text, weight in write(n):
        part = tokenizer.encode(text).ids
        ids += part
        weights += [chat.CALL_WEIGHT if weight == chat.WORDS_WEIGHT else weight] + [weight] * (len(part) - 1) if part else []
    return np.array(ids[: n_ctx + 1], dtype=np.uint16), np.array(weights[: n_ctx + 1], dtype=np.uint8)


@cache
def loaded(tokenizer_file):
    return Tokenizer.from_file(tokenizer_file)


def check_template(documents):
    """The template of the file must write what `chat.pieces` writes."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = chat.as_json
    environment.globals["raise_exception"] = lambda text: (_ for _ in ()).throw(jinja2.TemplateError(text))
    template = environment.from_string(chat.TEMPLATE)
    for tools, messages in documents:
        given = [{"type": "function", "function": {"name": name}} for name in tools]
        wrapped = [m | ({"tool_calls": [{"function": call} for call in m["tool_calls"]]} if "tool_calls" in m else {}) for m in messages]
        text = template.render(bos_token=chat.BEGIN, tools=given, messages=wrapped)
        assert text == "".join(piece for piece, _ in chat.pieces(tools, messages)), text


def prepare(args, out):
    """Rows to learn from and held-out rows; a tokenizer already in `out` is kept."""
    check_template([compose.conversation(n, compose.HARD) for n in range(500)])
    written = partial(written_conversation, HABITS[args.habits])
    numbers = lambda n: [*range(N_HELD_OUT), *range(N_HELD_OUT + args.first, N_HELD_OUT + args.first + n)]
    file = out / "tokenizer.json"
    with Pool() as pool:
        if not file.exists():
            sample = pool.map(written, numbers(args.conversations)[N_HELD_OUT:][:20_000], chunksize=500)
            sample += pool.map(written_story, numbers(args.stories)[N_HELD_OUT:][:4_000], chunksize=500)
            marks = "|".join(re.escape(mark) for mark in chat.SPECIAL)
            texts = [part for document in sample for text, _ in document for part in re.split(marks, text)]
            make_tokenizer(texts, [compose.conversation(n) for n in range(20_000)], args.shape.n_vocab).save(str(file))
        conversations = pool.map(partial(encoded, str(file), args.shape.n_ctx, written), numbers(args.conversations), chunksize=500)
        stories = pool.map(partial(encoded, str(file), args.shape.n_ctx, written_story), numbers(args.stories), chunksize=500)
    held_out = {"conversations": conversations[:N_HELD_OUT], "stories": stories[:N_HELD_OUT]}
    return conversations[N_HELD_OUT:] + stories[N_HELD_OUT:], held_out


def choice(args, tokenizer_file):
    """Calls and the decision for one are what a text is judged by."""
    if args.share == 1:
        return None
    tokenizer = loaded(tokenizer_file)
    return Choice(args.share, chat.CALL_WEIGHT, tokenizer.token_to_id(chat.ASSISTANT), tokenizer.token_to_id(chat.CALL))


def finish(tokenizer_file, model, out):
    """One answer, as a sign of life."""
    tokenizer = loaded(tokenizer_file)
    document = chat.pieces(compose.TOOLS, [{"role": "user", "content": "turn on the kitchen light and set a timer for ten minutes"}])
    ids = [id for text, _ in document + [(chat.ASSISTANT, 0)] for id in tokenizer.encode(text).ids]
    print(tokenizer.decode(model.generate(ids, 80, stop=tokenizer.token_to_id(chat.END)), skip_special_tokens=False))


def main():
    parser = argparse.ArgumentParser()
    loop.add_options(parser, SHAPE)
    parser.add_argument("--conversations", type=int, default=120_000)
    parser.add_argument("--stories", type=int, default=30_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first conversation and story, so that another run has others")
    parser.add_argument("--habits", choices=HABITS, default="hard", help="how people talk in what is learned from; what is held out has the usual ones")
    parser.add_argument("--share", type=float, default=1.0, help="of the tokens read, learned from: those of conversations that go wrong")
    args = parser.parse_args()
    if not 0 < args.share <= 1:
        parser.error("--share: above 0, at most 1")
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    clock = time.time()
    # Before the data is made, so that a model that cannot be gone on from is refused at once.
    n = sum(p.numel() for p in loop.begun(args).parameters())
    rows, held_out = prepare(args, out)
    n_tokens = sum(len(ids) for ids, _ in rows)
    print(f"{len(rows)} texts, {n_tokens / 1e6:.2f} M tokens, {n / 1e6:.2f} M parameters, data ready after {time.time() - clock:.0f} s", flush=True)
    loop.start(args, rows, held_out, partial(finish, str(out / "tokenizer.json")), choice(args, str(out / "tokenizer.json")))


if __name__ == "__main__":
    main()
