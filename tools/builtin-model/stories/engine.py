"""Puts sentences together: alternatives, characters with consistent names and pronouns, articles, capital letters.

A template is text with `[a|b|]` for alternatives (nested, one may be empty) and `{slot}` for words of this story.
Of a character `A`: `{A}` names it, `{a}` is its name or, where that is clear, its pronoun; `{a.o}` object form, `{a.p}`
possessive; `{A.he} {A.him} {A.his} {A.self}` force the pronoun. `{he} {him} {his} {himself}` are those of `A`, the hero.
The engine knows nothing about plots.
"""

import re
from functools import lru_cache

import lexicon as lex

PRONOUNS = {"he": ("he", "him", "his", "himself"), "she": ("she", "her", "her", "herself")}
INNERMOST = re.compile(r"\[([^\[\]]*)\]")
SAID_PRONOUN = re.compile(r"\b(said|cried|shouted|called|asked|whispered|thought) \{([a-g])\}")
SLOT = re.compile(r"\{([A-Za-z_0-9]+)(?:\.([a-z]+))?\}")
ARTICLE = re.compile(r"\b([Aa]) (?=([\"']?)([A-Za-z]+))")
SENTENCE_START = re.compile(r"(?<![A-Z]r\.)(?<!Mrs\.)(?<=[.!?]) ([a-z])")
OPEN_QUOTE = re.compile(r'(^|[ \n])"([a-z])')
SOUNDS_LIKE_CONSONANT = ("one", "once", "useful", "unicorn", "uniform", "used", "university", "european")
SOUNDS_LIKE_VOWEL = ("hour", "honest", "hours")


@lru_cache(maxsize=None)
def lines(block):
    """The alternatives of a block of text, one a line."""
    return [line.strip() for line in block.strip().splitlines() if line.strip()]


@lru_cache(maxsize=None)
def choices(text):
    """Splits at the bars that are outside brackets."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c == "[":
            depth += 1
        elif c == "]":
            depth -= 1
        elif c == "|" and depth == 0:
            out.append(text[start:i])
            start = i + 1
    return out + [text[start:]]


class Character:
    """Someone in a story: a kind ("ant", "girl"), maybe a name, adjectives, a pronoun."""

    def __init__(self, kind, pronoun, name=None, adjective=None, home="house", food="bread", moved="walked"):
        self.kind, self.pronoun, self.name, self.adjective = kind, pronoun, name, adjective
        self.home, self.food, self.moved = home, food, moved
        self.is_child = kind in ("girl", "boy")

    def intro(self):
        """'little ant' or 'little ant named Pip', without an article."""
        noun = f"{self.adjective} {self.kind}" if self.adjective else self.kind
        return f"{noun} {'called' if len(self.name) % 3 == 0 else 'named'} {self.name}" if self.name else noun

    def mention(self, rng):
        if self.name and (self.is_child or self.kind in lex.ROLES or rng.random() < 0.8):
            return self.name
        if self.adjective and rng.random() < 0.25:
            return f"the {self.adjective} {self.kind}"
        return f"the {self.kind}"


class Story:
    """One story in the making: its random source, its words, its sentences."""

    def __init__(self, rng):
        self.rng = rng
        self.words = {}
        self.cast = {}
        self.clear_subject = {}
        self.sentences = []
        self.at_home = False

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, options):
        return self.rng.choice(options)

    def set(self, **words):
        """Fixes words for the whole story; each may contain alternatives."""
        for key, text in words.items():
            self.words[key] = self.expand(text)

    def one_of(self, key, block):
        """Fixes one line of the block as word `key` and returns its index, for what depends on it."""
        options = lines(block)
        index = self.rng.randrange(len(options))
        self.words[key] = self.expand(options[index])
        return index

    def pair(self, keys, block):
        """Fixes several words together: a line is `x / y / z` for keys x, y, z."""
        parts = self.pick(lines(block)).split(" / ")
        assert len(parts) == len(keys), parts
        for key, part in zip(keys, parts):
            self.words[key] = self.expand(part)

    def say(self, block):
        """Adds one of the lines of the block."""
        text = self.expand(self.pick(lines(block)))
        self.sentences.append(text[0].upper() + text[1:] if text[0] != '"' else text)

    def maybe(self, p, block):
        if self.chance(p):
            self.say(block)

    def paragraph(self):
        if self.sentences and self.sentences[-1] != "\n":
            self.sentences.append("\n")
        self.clear_subject.clear()

    def expand(self, text):
        while "[" in text:
            text = INNERMOST.sub(lambda m: self.pick(m.group(1).split("|")), text)
        text = SAID_PRONOUN.sub(lambda m: f"{m.group(1)} {{{m.group(2).upper()}}}", text)
        return SLOT.sub(self.fill, text)

    def fill(self, match):
        key, form = match.group(1), match.group(2)
        if key in ("he", "him", "his", "himself"):
            key, form = "A", "self" if key == "himself" else key
        if key.upper() in self.cast and len(key) == 1:
            return self.refer(key, form)
        return self.words[key]

    def refer(self, key, form):
        who = self.cast[key.upper()]
        subject, obj, possessive, reflexive = PRONOUNS[who.pronoun]
        if form in ("he", "him", "his", "self"):
            return {"he": subject, "him": obj, "his": possessive, "self": reflexive}[form]
        if form in ("kind", "home", "food", "moved", "name", "adjective", "intro"):
            self.clear_subject[who.pronoun] = who
            return who.intro() if form == "intro" else getattr(who, form) or who.kind
        clear = self.clear_subject.get(who.pronoun) is who
        if key.islower() and clear and self.chance(0.75):
            return {None: subject, "o": obj, "p": possessive}[form]
        self.clear_subject[who.pronoun] = who
        name = who.mention(self.rng)
        return name + "'s" if form in ("p", "s") else name

    def break_paragraphs(self):
        """Adds breaks where a paragraph has become long."""
        out, since = [], 0
        for sentence in self.sentences:
            since = 0 if sentence == "\n" else since + 1
            if since > 4 and self.chance(0.4):
                out.append("\n")
                since = 1
            out.append(sentence)
        self.sentences = out

    def text(self):
        """The finished story: articles, capitals, paragraphs."""
        if self.chance(0.5):
            self.break_paragraphs()
        paragraphs = " ".join(self.sentences).split("\n")
        return "\n".join(polish(p.strip()) for p in paragraphs if p.strip())


def article(match):
    a, word = match.group(1), match.group(3).lower()
    vowel = word[0] in "aeiou" and not word.startswith(SOUNDS_LIKE_CONSONANT) or word in SOUNDS_LIKE_VOWEL
    return (a + "n " if vowel else a + " ")


def polish(text):
    text = re.sub(r" +", " ", text)
    text = re.sub(r" ([,.!?])", r"\1", text)
    text = ARTICLE.sub(article, text)
    text = SENTENCE_START.sub(lambda m: " " + m.group(1).upper(), text)
    return OPEN_QUOTE.sub(open_quote, text)


def open_quote(match):
    """A quote starts with a capital, except where it goes on after `," said X,`."""
    before = match.string[max(0, match.start() - 45) : match.start()]
    goes_on = before.endswith(",") and re.search(r'[,!?]" [^".!?]*,$', before)
    letter = match.group(2) if goes_on else match.group(2).upper()
    return f'{match.group(1)}"{letter}'


# ---- casting -------------------------------------------------------------------------------------------------------


def invented_name(rng):
    """A name no list has, so that the model learns to copy names rather than to know them."""
    syllables = rng.randrange(2, 4)
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(syllables)).capitalize() + rng.choice(["", "", "n", "l", "r", "s"])


def other_pronoun(rng, avoid):
    if avoid and rng.random() < 0.8:
        return "she" if avoid == "he" else "he"
    return rng.choice(["he", "she"])


def child(rng, avoid=None, taken=()):
    pronoun = other_pronoun(rng, avoid)
    names = lex.GIRLS if pronoun == "she" else lex.BOYS
    name = invented_name(rng) if rng.random() < 0.06 else rng.choice(names)
    while name in taken:
        name = rng.choice(names)
    return Character("girl" if pronoun == "she" else "boy", pronoun, name, rng.choice(lex.CHILD_ADJ))


def animal(rng, avoid=None, taken=(), kinds=None, named=0.55):
    kind = rng.choice([k for k in (kinds or list(lex.ANIMALS)) if k not in taken])
    adjectives, home, food, moved = lex.ANIMALS[kind]
    name, pronoun = None, other_pronoun(rng, avoid)
    if rng.random() < named:
        name = invented_name(rng) if rng.random() < 0.08 else rng.choice(lex.PET_NAMES)
        while name in taken or name in (lex.FEMALE if pronoun == "he" else lex.MALE):
            name = rng.choice(lex.PET_NAMES)
    return Character(kind, pronoun, name, rng.choice(adjectives.split()), home, food, moved)


def machine(rng, avoid=None, taken=(), kinds=None):
    kind = rng.choice(kinds or list(lex.MACHINES))
    name = rng.choice([n for n in lex.BOT_NAMES if n not in taken])
    return Character(kind, other_pronoun(rng, avoid), name, rng.choice(lex.MACHINES[kind].split()), "workshop", "oil", "rolled")


def worker(rng, avoid=None):
    kind, pronoun = rng.choice(lex.WORKERS).split(":")
    if avoid and pronoun == avoid and rng.random() < 0.6:
        return worker(rng, avoid)
    return Character(kind, pronoun, None, rng.choice(["old", "kind", "friendly", "old"]))


def relative(rng, avoid=None):
    kind = rng.choice([k for k, p in lex.ROLES.items() if not (avoid == p and rng.random() < 0.7)] or list(lex.ROLES))
    return Character(kind, lex.ROLES[kind], kind.capitalize())
