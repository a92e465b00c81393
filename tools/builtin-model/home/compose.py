"""Whole conversations out of single requests: courtesy, typing habits, two wishes in one sentence, follow-ups, missing
values, tools that are not offered, stories.

Knows how requests are put together, and nothing of lights or timers. `conversation(n)` is always the same.
"""

import json
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import alarms
import arithmetic
import devices
import lights
import lists
import music
import talk
import timers
import weather
from grammar import Request, chance, one_of

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "stories"))
import generate  # noqa: E402
import lexicon  # noqa: E402

TOOLS = [tool["name"] for tool in json.loads((HERE.parents[2] / "examples/home/tools.json").read_text())]
# How often each module is asked for a request; what it makes of that is its own affair.
MODULES = {lights: 17, devices: 17, timers: 11, alarms: 15, weather: 11, music: 17, lists: 14, arithmetic: 14}
FOLLOWS = {name: follow for module in MODULES for name, follow in getattr(module, "FOLLOWS", {}).items()}
# Arguments that may be any text.
OPEN = {"room", "device", "label", "place", "query", "list", "items"}
ACCENTS = {"a": "áàâäãå", "e": "éèêë", "i": "íîï", "o": "óôöøõ", "u": "úûü", "c": "çć", "n": "ñń", "s": "šś", "z": "žż", "l": "ł", "O": "ÓÖØ", "A": "ÁÅ"}
CREATURES = [*lexicon.ANIMALS, "robot", "girl", "boy"]

BEFORE = """please|please|please|could you|can you|can you please|could you please|would you|would you please|hey, |hi, |hey |ok, |okay |ok now |now |so, |um |uh, |right, |hello, |
hey, can you|hey could you|hi, could you|I want you to|I need you to|I'd like you to|be so kind and|go ahead and|just|quickly|kindly|would you be so kind as to|
do me a favor and|do me a favour and|will you|will you please|hey, please|ok, please|listen, |computer, |atta, |hey atta, |dear house, |can you quickly|could you just|maybe|
alright, |well, |yes, |yeah, |oh, |oh and |I would like you to|if you can, |when you have a moment, |one more thing: |next, |first, |""".replace("\n", "").split("|")  # fmt: skip
AFTER = """ please| please|, please|, please| thanks|, thanks|, thank you| thank you| for me| for me please| now| right now| right away| at once|, would you|, will you| if you can|
, if possible| if you don't mind|, ok|, okay|, buddy|, dear| real quick| already|, cheers| when you can|, would you please|, could you|, atta""".replace("\n", "").split("|")  # fmt: skip
SPEAK = ["hey, ", "hi, ", "hello, ", "ok, ", "so, ", "um, ", "excuse me, ", "tell me, ", "quick question: ", "atta, ", "by the way, ", "hey ", "one question, ", "oh, "]
JOINTS = [" and ", " and ", " and ", " and ", " and then ", ", then ", ", ", ", and ", " and also ", " and please ", ". then ", ", also ", " then ", " as well as ", " plus ", ", after that "]
QUESTION_JOINTS = [" and ", ", and ", "? and ", ". also, ", ". ", " and also "]
KEYS = {a: b for a, b in zip("abcdefghijklmnopqrstuvwxyz", "sq vn xf sr wd dg fh gj uo hk jl kp nk bm ip ol wa et ad ry yi cb qe zc tu xs".split())}


@dataclass(frozen=True)
class Habits:
    """How people talk: the share of turns with typing errors, of requests that another one follows in the same sentence, and
    of turns behind a call that change it: behind calculations and conversions, and behind other calls."""

    typing_errors: float = 0.1
    joins: float = 0.26
    changed_sums: float = 0.25
    changed_calls: float = 0.25


USUAL = Habits()
# More of what is hard to learn.
HARD = Habits(typing_errors=0.22, joins=0.45, changed_sums=0.7)


def weighted(rng, weights):
    """One of the things, by their weights."""
    mark = rng.random() * sum(weights.values())
    for thing, weight in weights.items():
        mark -= weight
        if mark < 0:
            break
    return thing


def request(rng, module):
    """A request of that module."""
    kind = weighted(rng, {name: weight for name, (weight, _) in module.REQUESTS.items()})
    return module.REQUESTS[kind][1](rng)


def joined(rng, first, second):
    """Two requests in one sentence, or None if these two cannot be joined."""
    if first.form == "command" and second.form == "command":
        joint = one_of(rng, JOINTS)
        if joint == " as well as ":
            joint = " and "
    elif second.form in ("command", "question"):
        joint = one_of(rng, QUESTION_JOINTS)
    elif first.form == "statement" and second.form == "statement":
        joint = one_of(rng, [" and ", ", ", ". ", ", and "])
    else:
        return None
    reply = first.reply if first.reply == second.reply else f"{first.reply} {second.reply}"
    return Request(first.text + joint + second.text, first.form, first.calls + second.calls, first.results + second.results, reply)


def polite(rng, made):
    """The text with courtesy around it, as its form allows."""
    text = made.text
    if made.form == "command":
        if chance(rng, 0.5):
            before = one_of(rng, BEFORE)
            text = before + text if before.endswith(" ") else f"{before} {text}".strip()
            if before.startswith(("could", "can", "would", "will")) and chance(rng, 0.5):
                return text + "?"
        if chance(rng, 0.22):
            text += one_of(rng, AFTER)
    elif chance(rng, 0.12):
        text = one_of(rng, SPEAK) + text
        if made.form == "statement" and chance(rng, 0.2):
            text += ", please"
    elif made.form == "statement" and chance(rng, 0.15):
        text += one_of(rng, [" please", ", please", " thanks", ", thanks", " now", ", thank you"])
    return text


def slipped(rng, word):
    """The word with one typing error."""
    i = int(rng.random() * (len(word) - 1))
    kind = rng.random()
    if kind < 0.3:
        return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    if kind < 0.6:
        return word[:i] + word[i + 1 :]
    if kind < 0.8:
        return word[: i + 1] + word[i:]
    c = word[i]
    return word[:i] + one_of(rng, KEYS.get(c, c)) + word[i + 1 :]


def with_typos(rng, text):
    """One or two words that are not to be copied get a typing error."""
    parts = re.split(r"(\{[^}]*\})", text)
    places = [(i, m.span()) for i in range(0, len(parts), 2) for m in re.finditer(r"[a-z]{3,}", parts[i])]
    rng.shuffle(places)
    for i, (a, b) in sorted(places[: 1 + chance(rng, 0.25)], key=lambda place: -place[1][0]):
        parts[i] = parts[i][:a] + slipped(rng, parts[i][a:b]) + parts[i][b:]
    return "".join(parts)


def changed(text, calls, change):
    """The same with `change` done to every value that is copied, in the text and in the arguments."""
    spoken = set(re.findall(r"\{([^}]*)\}", text))

    def of(key, value):
        if isinstance(value, list):
            return [of(key, item) for item in value]
        return change(value) if key in OPEN and value in spoken else value

    given = {value for _, arguments in calls for key in OPEN & arguments.keys() for value in flat(arguments[key])}
    text = re.sub(r"\{([^}]*)\}", lambda m: "{" + (change(m[1]) if m[1] in given else m[1]) + "}", text)
    return text, [(name, {key: of(key, value) for key, value in arguments.items()}) for name, arguments in calls]


def flat(value):
    return value if isinstance(value, list) else [value]


def with_accents(rng, text, calls):
    """Some letters of the copied values get an accent, as in names of other languages."""
    letters = {plain: one_of(rng, marks) for plain, marks in ACCENTS.items() if chance(rng, 0.5)}
    return changed(text, calls, lambda value: "".join(letters.get(c, c) for c in value))


def typed(rng, made, text, habits):
    """(text, calls) as somebody types or says it: case, marks, errors."""
    calls = made.calls
    if chance(rng, habits.typing_errors):
        text = with_typos(rng, text)
    question = made.form == "question" or text.endswith("?")
    text = text.rstrip("?")
    style = rng.random()
    if chance(rng, 0.03):
        text, calls = with_accents(rng, text, calls)
    if style < 0.45:
        if chance(rng, 0.6):
            text, calls = changed(text, calls, str.lower)
            text = text.lower()
        if chance(rng, 0.3):
            text = re.sub(r"(?<=\w),(?= )", "", text) if "{" not in text else text
        text += "?" if question and chance(rng, 0.35) else ""
    else:
        first = re.match(r"\{?(\w)", text)
        if first and not text.startswith("{"):
            text = text[0].upper() + text[1:]
        text = re.sub(r"([.?!] )([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)
        if style < 0.85:
            text += "?" if question else one_of(rng, [".", ".", ".", "!", ""])
    return text.replace("{", "").replace("}", ""), calls


def turn(rng, made, habits):
    """The messages of one exchange."""
    user, calls = typed(rng, made, polite(rng, made), habits)
    messages = [{"role": "user", "content": user}]
    if calls:
        messages.append({"role": "assistant", "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls]})
        messages += [{"role": "tool", "content": json.dumps(result, ensure_ascii=False)} for result in made.results]
    messages.append({"role": "assistant", "content": sentence(made.reply)})
    return messages, calls


def sentence(text):
    """A reply: no braces, a capital in front, a mark behind."""
    text = text.replace("{", "").replace("}", "")
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", '"')) else text + "."


def story_turn(rng, habits):
    """Somebody asks for a story."""
    text = generate.story(int(rng.random() * 1e9))
    about = [creature for creature in CREATURES if re.search(rf"\b{creature}\b", text[:160])]
    ask = one_of(rng, ["tell me a story", "tell us a story", "I'd like to hear a story", "read me a story", "tell me a bedtime story", "a story", "make up a story",
                       "do you know a story", "can you tell a story", "tell a little story", "story time", "I want to hear a story", "how about a story"])  # fmt: skip
    if about and chance(rng, 0.7):
        ask += f" about a {about[0]}"
    return turn(rng, Request(ask, "command" if ask.startswith(("tell", "read", "make")) else "statement", reply=text), habits)[0]


def not_offered(rng, made, offered):
    """The same request, when a tool that it needs is not there."""
    missing = next(name for name, _ in made.calls if name not in offered)
    return Request(made.text, made.form, reply=talk.offered_not(rng, missing))


def if_offered(rng, made, offered):
    """The same request, with words for an answer if a tool that it needs is not there."""
    return made if all(name in offered for name, _ in made.calls) else not_offered(rng, made, offered)


def one_or_more(rng, habits):
    """A request; some are two or three in one sentence."""
    made = request(rng, weighted(rng, MODULES))
    while chance(rng, habits.joins) and len(made.calls) < 3:
        second = request(rng, weighted(rng, MODULES))
        both = joined(rng, made, second) if "error" not in str(made.results + second.results) else None
        made = both or made
    return made


def wish(rng, offered, habits):
    """A request; where tools are few, it is one for them a little more often than chance has it."""
    for _ in range(4):
        made = one_or_more(rng, habits)
        if all(name in offered for name, _ in made.calls) or chance(rng, 0.5):
            break
    return if_offered(rng, made, offered)


def offered_tools(rng):
    """Which tools there are: mostly all, in their order; sometimes some, sometimes in another order."""
    kind = rng.random()
    if kind < 0.48:
        return TOOLS
    if kind < 0.51:
        return []
    share = 0.05 + 0.95 * rng.random() ** 1.5
    some = [tool for tool in TOOLS if chance(rng, share)] or [one_of(rng, TOOLS)]
    if chance(rng, 0.3):
        rng.shuffle(some)
    return some


def conversation(n, habits=USUAL):
    """(tools, messages) of that number, always the same for the same habits."""
    rng = random.Random(f"atta home {n}")
    offered = offered_tools(rng)
    messages, last, length = [], None, 1 + int(rng.random() * 5)
    while length > 0 or not messages:
        length -= 1
        kind = rng.random()
        changes = habits.changed_sums if last and last[0] in arithmetic.FOLLOWS else habits.changed_calls
        if last and last[0] in FOLLOWS and kind < changes:
            made = FOLLOWS[last[0]](rng, last[1])
            if made is None:
                continue
            more, calls = turn(rng, if_offered(rng, made, offered), habits)
        elif kind < 0.75:
            more, calls = turn(rng, wish(rng, offered, habits), habits)
        elif kind < 0.93:
            more, calls = turn(rng, request(rng, talk), habits)
        elif kind < 0.98:
            names = [name for name in talk.ANSWERS if name in offered]
            if not names:
                continue
            name = one_of(rng, names)
            more, calls = turn(rng, talk.MISSING[name](rng), habits)
            answer, calls = turn(rng, talk.ANSWERS[name](rng), habits)
            more = more + answer
        else:
            more, calls, length = story_turn(rng, habits), [], 0
        messages += more
        last = calls[0] if len(calls) == 1 else None
    return offered, messages


def main():
    """Prints some conversations, to be read."""
    start, count = (int(value) for value in (sys.argv[1:] + ["0", "10"])[:2])
    for n in range(start, start + count):
        offered, messages = conversation(n)
        print(f"--- {n}: {len(offered)} tools")
        for message in messages:
            calls = "".join(f" {call['name']} {json.dumps(call['arguments'])}" for call in message.get("tool_calls", []))
            print(f"{message['role']:>9}: {message.get('content', '')}{calls}")


if __name__ == "__main__":
    main()
