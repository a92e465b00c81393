"""A little language of patterns, and what a request is.

A pattern is text with alternatives `[turn|switch]`, which may be empty and nested (`[|please [now|at once]]`), and
slots `$room`. `expand(rng, pattern, room="kitchen")` chooses, puts the values in, and tidies the spaces. A value that
the model has to copy letter for letter is put in braces by `copied`: no typing error is made within them, and they are
taken away at the very end.

    expand(rng, "[turn|switch] on the $room [light|lamp]", room=copied("kitchen"))
    -> "switch on the {kitchen} light"
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass
class Request:
    """One wish, and what is to be done about it.

    text: a clause in lower case, but for names, without end mark and courtesy ("turn on the {kitchen} light").
    form: "command" (an imperative: "please" and "could you" fit in front, "and" can join it to another), "question"
          (stands alone, gets a question mark) or "statement" (stands alone: "it's too dark in here").
    calls: [(tool, arguments)], arguments in the order of tools.json; [] if there is nothing to call.
    results: what the tools answer, one JSON value for each call.
    reply: what the model says after that; if there are no calls, its answer.
    """

    text: str
    form: str
    calls: list = field(default_factory=list)
    results: list = field(default_factory=list)
    reply: str = ""


def copied(value):
    return "{" + value + "}"


def one_of(rng, items):
    return items[int(rng.random() * len(items))]


def chance(rng, p):
    return rng.random() < p


@lru_cache(maxsize=None)
def parse(pattern):
    """The pattern as nested lists: a sequence of text, ("slot", name) and ("choice", [sequence, ...])."""
    sequence, stack, i = [], [], 0
    while i < len(pattern):
        c = pattern[i]
        if c == "[":
            stack.append((sequence, []))
            sequence = []
        elif c == "|" and stack:
            stack[-1][1].append(sequence)
            sequence = []
        elif c == "]":
            outer, options = stack.pop()
            options.append(sequence)
            outer.append(("choice", options))
            sequence = outer
        elif c == "$":
            name = re.compile(r"[a-z_]+").match(pattern, i + 1).group()
            sequence.append(("slot", name))
            i += len(name)
        else:
            end = re.compile(r"[^\[\]|$]+").match(pattern, i)
            text = end.group() if end else c
            sequence.append(text)
            i += len(text) - 1
        i += 1
    if stack:
        raise ValueError(f"open bracket in {pattern!r}")
    return sequence


def written(rng, sequence, values, out):
    for part in sequence:
        if isinstance(part, str):
            out.append(part)
        elif part[0] == "slot":
            out.append(values[part[1]])
        else:
            written(rng, one_of(rng, part[1]), values, out)


def expand(rng, pattern, **values):
    """One text of the pattern; an empty alternative leaves no double space and no space before a mark."""
    out = []
    written(rng, parse(pattern), values, out)
    text = re.sub(r"\s+", " ", "".join(out)).strip()
    return re.sub(r" ([,.?!])", r"\1", text)


ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
        "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]  # fmt: skip
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def in_words(n, hyphen="-"):
    """0 to 999,999 as people say it: 125 is "one hundred and twenty-five"."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + (hyphen + ONES[n % 10] if n % 10 else "")
    if n < 1000:
        return ONES[n // 100] + " hundred" + (" and " + in_words(n % 100, hyphen) if n % 100 else "")
    return in_words(n // 1000, hyphen) + " thousand" + (" " + in_words(n % 1000, hyphen) if n % 1000 else "")


def number(rng, n, words=0.35):
    """A whole number as digits or, with that chance, in words."""
    if n == int(n) and chance(rng, words):
        return in_words(int(n), one_of(rng, ["-", "-", " "]))
    return str(n)


STARTS = "b bl br c ch cl d dr f fl g gr h j k kr l m n p pl pr qu r s sh sl sp st t th tr v w y z".split()
MIDDLES = "a e i o u ai ea ee oo ou a e i o".split()
ENDS = "b ck d ft g l ll m mp n nd ng nt p r rk rn s sh st t x th  ".split(" ")


def invented(rng, capital=False):
    """A word that no list holds, of one to three syllables."""
    word = "".join(one_of(rng, STARTS) + one_of(rng, MIDDLES) + one_of(rng, ENDS) for _ in range(1 + int(rng.random() * 2.4)))
    return word.capitalize() if capital else word
