"""Requests for the tools `calculate` and `convert`: sums, percentages, word problems, bills, and units of all kinds."""

import re

from grammar import Request, chance, copied, expand, in_words, one_of

ERRORS = ["calculator not available", "no answer", "timeout", "something went wrong", "not possible", "busy", "internal error", "out of range"]
SORRY = [
    "Sorry, that didn't work: $e.", "I couldn't work that out: $e.", "That failed: $e.", "I have no result: $e.", "Sorry, $e.",
    "No luck with that one: $e.", "It didn't work out: $e.", "I'm afraid there is no answer: $e.", "Sorry, I got an error: $e.",
]  # fmt: skip


def framed(**patterns):
    """[(form, pattern)] of the patterns of each form."""
    return [(form, pattern) for form in patterns for pattern in patterns[form]]


# Numbers


def between(rng, low, high):
    return low + int(rng.random() * (high - low + 1))


def spoken(rng, n):
    """A whole number up to a million as people say it: "a hundred", "fifteen hundred", "two thousand and five"."""
    if n < 0:
        return one_of(rng, ["minus ", "minus ", "negative "]) + spoken(rng, -n)
    if n == 1_000_000:
        return one_of(rng, ["a million", "one million"])
    if 1000 < n < 2000 and n % 100 == 0 and chance(rng, 0.4):
        return in_words(n // 100) + " hundred"
    text = in_words(n, one_of(rng, ["-", "-", " "]))
    if n > 1000 and 0 < n % 1000 < 100 and chance(rng, 0.6):
        tail = in_words(n % 1000, "-")
        text = in_words(n - n % 1000, "-") + " and " + tail
    if chance(rng, 0.3):
        text = text.replace(" and ", " ")
    if n in (100, 1000, 100_000) and chance(rng, 0.6):
        text = "a" + text.removeprefix("one")
    return text


def said(rng, n, words=0.33):
    """(text, digits) of a whole number."""
    if chance(rng, words):
        return copied(spoken(rng, n)), str(n)
    if n >= 1000 and chance(rng, 0.15):
        return copied(f"{n:,}"), str(n)
    return copied(str(n)), str(n)


def amount(rng):
    """A whole number as it comes up in everyday sums."""
    r = rng.random()
    if r < 0.25:
        return between(rng, 2, 12)
    if r < 0.55:
        return between(rng, 2, 99)
    if r < 0.75:
        return between(rng, 10, 999)
    if r < 0.85:
        return between(rng, 1, 99) * one_of(rng, [10, 100, 1000, 5, 25, 50])
    if r < 0.95:
        return between(rng, 1000, 9999)
    return one_of(rng, [100, 1000, 1_000_000, between(rng, 10_000, 999_999), between(rng, 1, 999) * 1000])


def decimal(rng):
    """(text, digits) of a number with decimals."""
    r = rng.random()
    if r < 0.12:
        n = between(rng, 1, 20)
        return copied(spoken(rng, n) + " and a half"), f"{n}.5"
    if r < 0.25:
        n, places = between(rng, 0, 30), [between(rng, 1, 9)]
        if chance(rng, 0.4):
            places = [between(rng, 0, 9)] + places
        return copied(spoken(rng, n) + " point " + " ".join(in_words(p) for p in places)), f"{n}." + "".join(map(str, places))
    digits = one_of(rng, [1, 1, 2, 2, 3])
    n = between(rng, 1, one_of(rng, [9, 99, 999, 9999]))
    text = f"{n / 10 ** digits:.{digits}f}"
    return copied(text), text


def operand(rng, words=0.33, decimals=0.1):
    if chance(rng, decimals):
        return decimal(rng)
    return said(rng, amount(rng), words)


def price(rng, high=200):
    """(text, digits) of a sum of money, mostly with cents; the currency may be named."""
    r = rng.random()
    if r < 0.4:
        number = f"{between(rng, 0, high - 1)}.{one_of(rng, ['50', '99', '20', '80', '95', '25', '75', '49', f'{between(rng, 1, 99):02}'])}"
    else:
        number = str(between(rng, 1, high))
    r = rng.random()
    if r < 0.1:
        return one_of(rng, ["€", "£"]) + copied(number), number
    text = spoken(rng, int(number)) if "." not in number and chance(rng, 0.3) else number
    return copied(text) + (" " + one_of(rng, ["dollars", "euros", "dollars", "pounds", "bucks"]) if r < 0.35 else ""), number


# What comes out


def rounded(value):
    value = round(value, 4)
    return int(value) if value == int(value) else value


def result_of(expression):
    """The result of an expression that this module has built of digits, + - * / and brackets."""
    try:
        return {"result": rounded(eval(expression, {"__builtins__": {}}))}
    except ZeroDivisionError:
        return {"error": "division by zero"}


SPOKEN_SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
PLAIN_REPLIES = [
    "That's $r.", "It's $r.", "$r.", "That makes $r.", "The answer is $r.", "That comes to $r.", "$r is the answer.", "The result is $r.",
    "That gives $r.", "You get $r.", "It comes to $r.", "That would be $r.",
]  # fmt: skip


def calculation(rng, text, form, expression, replies=()):
    result = {"error": one_of(rng, ERRORS)} if chance(rng, 0.025) else result_of(expression)
    if "error" in result:
        return Request(text, form, [("calculate", {"expression": expression})], [result], expand(rng, one_of(rng, SORRY), e=result["error"]))
    value = str(result["result"])
    percent = re.fullmatch(r"(\S+) \* (\S+) / 100", expression)
    if replies and chance(rng, 0.7):
        pattern = one_of(rng, replies)
    elif percent and chance(rng, 0.6):
        pattern = f"{percent[2]} percent of {percent[1]} is $r."
    elif len(expression.split()) == 3 and chance(rng, 0.5):
        a, sign, b = expression.split()
        pattern = f"{a} {SPOKEN_SIGNS[sign]} {b} " + one_of(rng, ["is $r.", "is $r.", "makes $r.", "equals $r."])
    elif len(expression.split()) > 3 and chance(rng, 0.25):
        pattern = expression + " = $r"
    else:
        pattern = one_of(rng, PLAIN_REPLIES)
    return Request(text, form, [("calculate", {"expression": expression})], [result], expand(rng, pattern, r=value))


# Frames around "12 times 7" ($x) and around "add 3 and 4" ($c)

NOUN_FRAMES = framed(
    question=[
        "what's $x", "what is $x", "how much is $x", "what's $x", "what is $x", "how much is $x", "$x", "$x", "$x", "what's $x then",
        "so what's $x", "what does $x [make|come to|give|equal|come out as|work out to]", "do you [happen to|] know [what|how much] $x is",
        "any idea [what|how much] $x is", "what [do|would|will] [I|you|we] get for $x", "[so|] [what|how much] would $x be",
        "$x is [what|how much]", "$x [equals|makes|gives] [what|how much]", "what's the [answer|solution] to $x", "what's the result of $x",
        "would you mind [working out|calculating|telling me] $x [|for me]", "[quick question|quick one|math question], what's $x",
        "[hang on|wait|okay|hmm|right|so|um], [what's|how much is|what was] $x [|again]", "$x, [what's that|what is it|how much is that]",
        "$x, what does that [make|come to|give]", "[what|how much] does $x come to [|in total|altogether]", "what [number|figure] is $x",
        "what might $x be", "is there a quick answer to $x", "how much would $x [make|come to|come out at]",
        "[I forgot|I'm bad at math|I can't count today|my brain is fried|I'm too tired to think], [what's|how much is|what is] $x",
        "[I'm doing my|for my|helping with] [taxes|homework|budget|accounts|bookkeeping|school work], [what's|how much is|what is] $x",
        "my [son|daughter|boss|teacher|wife|kid|neighbor] [wants to know|asks], [what's|how much is|what is] $x",
        "[according to you|in your opinion|off the top of your head], [what's|what is|how much is] $x", "what am I looking at for $x",
        "and [what's|what is|how much is] $x", "[what|how much] is $x [exactly|actually|in total|altogether|roughly]",
        "could it be that you know [what|how much] $x is", "who knows [what|how much] $x is", "[whats|wats] $x",
    ],
    command=[
        "calculate $x [||for me]", "compute $x", "work out $x [|for me]", "tell me [what|how much] $x is", "solve $x", "figure out $x [|for me]",
        "give me [the answer to|the result of|the value of] $x", "find out [what|how much] $x is", "do the [math|maths|sum] for $x",
        "let me know [what|how much] $x is", "run the numbers [on|for] $x", "evaluate $x", "check [what|how much] $x is",
        "help me [with|work out|figure out|calculate] $x", "quickly [calculate|compute|work out|do] $x", "show me [what|how much] $x is",
        "calculate [what|how much] $x is", "work out [what|how much] $x [is|comes to|makes]", "give me $x", "tell me $x",
        "say [what|how much] $x is", "get me the [answer|result] [of|for] $x", "use the calculator for $x",
        "do me a favor and [calculate|work out] $x", "just [calculate|compute|tell me] $x",
    ],
    statement=[
        "$x", "$x", "$x", "$x", "$x equals", "$x =", "$x is", "I need [|to know|the answer to|the result of|to work out] $x",
        "I [need|want|would like|have] to know [what|how much] $x is", "I'd like [to know [what|how much] $x is|the result of $x]",
        "I can't work out $x", "I'm stuck on $x", "I [always|can never remember or] forget [what|how much] $x is",
        "[calculation|math question|sum|quick math|calculator|maths|quick sum]: $x", "[let's see|let me see|okay|right|so|hmm], $x",
        "let's [work out|calculate|do|compute|solve] $x", "my [homework|exercise|worksheet|textbook] says $x", "I wonder [what|how much] $x is",
        "I was wondering [what|how much] $x is", "[no idea|not sure|I'm not sure|I don't know|I have no clue] [what|how much] $x is",
        "I have to [figure out|calculate|work out|compute] $x", "time for some [math|maths|arithmetic], $x", "I want $x [|calculated|worked out]",
        "$x please, I need the [result|answer]", "the [answer|result] of $x, [quick|quickly|if you can]", "I'm looking for the result of $x",
        "I've got to know [what|how much] $x is", "I bet you know [what|how much] $x is", "next one, $x", "next [sum|question|problem], $x",
        "it would help me to know [what|how much] $x is", "you surely know [what|how much] $x is",
    ],
)  # fmt: skip
VERB_FRAMES = framed(
    question=[
        "what do [I|you|we] get [if|when] [I|you|we] $c", "what happens [if|when] [I|you|we] $c",
        "what's the [result|answer] [if|when] [I|you|we] $c", "what [number|figure] do [I|you|we] get if [I|you|we] $c",
        "what does it [make|come to|give] [if|when] [I|you|we] $c", "would you mind if I asked you to $c",
        "how much is it [if|when] [I|you|we] $c", "if [I|you|we] $c, what do [I|you|we] get",
        "if [I|you|we] $c, [what's the result|what does that make|how much is that]", "suppose [I|you|we] $c, what's the result",
        "what will I have if I $c", "how much do [I|you|we] get [if|when] [I|you|we] $c", "what comes out [if|when] [I|you|we] $c",
    ],
    command=[
        "$c", "$c", "$c", "$c", "$c", "$c for me", "quickly $c", "just $c", "help me $c", "go ahead and $c",
    ],
    statement=[
        "I need you to $c", "I want to $c", "let's $c", "I'm trying to $c", "I have to $c", "I'd like you to $c", "I need to $c",
        "I want you to $c", "I'd like to $c", "it's time to $c",
    ],
)  # fmt: skip

NOUNS = {
    "+": ["$a plus $b", "$a plus $b", "$a + $b", "$a+$b", "the sum of $a and $b", "$a added to $b", "$a and $b [together|combined|added together]"],
    "-": ["$a minus $b", "$a minus $b", "$a - $b", "$a-$b", "$a less $b", "$a take away $b", "$b subtracted from $a", "$b taken away from $a",
          "$b less than $a"],
    "*": ["$a times $b", "$a times $b", "$a * $b", "$a x $b", "$a*$b", "$a multiplied by $b", "the product of $a and $b", "$a × $b"],
    "/": ["$a divided by $b", "$a divided by $b", "$a / $b", "$a/$b", "$a over $b", "$a ÷ $b", "$a split [by|into] $b", "the quotient of $a and $b"],
}
VERBS = {
    "+": ["add $a and $b", "add up $a and $b", "add $a to $b", "sum [|up] $a and $b", "add $a and $b together", "add $a plus $b",
          "total [|up] $a and $b", "add $a with $b", "find the sum of $a and $b", "increase $a by $b", "raise $a by $b"],
    "-": ["subtract $b from $a", "take $b [from|off|away from] $a", "deduct $b from $a", "remove $b from $a",
          "take away $b from $a", "reduce $a by $b", "decrease $a by $b", "lower $a by $b", "knock $b off $a",
          "find the difference between $a and $b"],
    "*": ["multiply $a by $b", "multiply $a with $b", "multiply $a and $b", "times $a by $b", "take $a times $b", "find the product of $a and $b",
          "multiply $a times $b"],
    "/": ["divide $a by $b", "divide $a by $b", "split $a by $b", "divide $a into $b [equal|] parts", "split $a into $b [equal|] parts",
          "share $a into $b equal parts", "break $a into $b equal parts", "cut $a into $b equal parts"],
}  # fmt: skip


def noun_framed(rng, x, expression, replies=()):
    form, frame = one_of(rng, NOUN_FRAMES)
    return calculation(rng, expand(rng, frame, x=x), form, expression, replies)


def verb_framed(rng, c, expression, replies=()):
    form, frame = one_of(rng, VERB_FRAMES)
    return calculation(rng, expand(rng, frame, c=c), form, expression, replies)


def two_operands(rng, sign):
    """Two numbers that suit the sign: products stay small, most quotients are whole."""
    words = one_of(rng, [0, 0, 0.15, 1])
    if sign == "/" and chance(rng, 0.75):
        b = one_of(rng, [between(rng, 2, 12), between(rng, 2, 12), between(rng, 2, 40), 100, 25])
        return said(rng, b * one_of(rng, [between(rng, 2, 30), between(rng, 2, 300)]), words), said(rng, b, words)
    a, b = operand(rng, words), operand(rng, words)
    if sign == "*" and chance(rng, 0.6):
        b = said(rng, between(rng, 2, 25), words)
    if sign == "-" and float(a[1]) < float(b[1]) and chance(rng, 0.8):
        a, b = b, a
    if sign == "/" and chance(rng, 0.02):
        b = said(rng, 0, words)
    return a, b


def pair(rng):
    sign = one_of(rng, "+-*/")
    (a, x), (b, y) = two_operands(rng, sign)
    expression = f"{x} {sign} {y}"
    if chance(rng, 0.65):
        return noun_framed(rng, expand(rng, one_of(rng, NOUNS[sign]), a=a, b=b), expression)
    if sign == "-" and chance(rng, 0.2):
        return noun_framed(rng, f"the difference between {a} and {b}", expression) if float(x) > float(y) else pair(rng)
    return verb_framed(rng, expand(rng, one_of(rng, VERBS[sign]), a=a, b=b), expression)


CHAIN_WORDS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
CHAIN_MARKS = {"+": "+", "-": "-", "*": "*", "/": "/"}
CHAIN_TYPED = {"+": "+", "-": "-", "*": "x", "/": "÷"}


def small(rng, words, decimals=0.05):
    if chance(rng, decimals):
        return decimal(rng)
    return said(rng, one_of(rng, [between(rng, 2, 12), between(rng, 2, 100), between(rng, 2, 100), amount(rng) % 2000 + 1]), words)


def chain(rng):
    """Three or four numbers in a row: 12 plus 7 minus 3."""
    signs = one_of(rng, ["++", "+-", "-+", "--", "**", "*+", "*-", "/+", "/-", "*/", "/*", "+*", "-*", "+++", "++-", "+-+", "-+-", "*++", "---",
                         "***"])
    words = one_of(rng, [0, 0, 0.15, 1])
    numbers = [small(rng, words) for _ in range(len(signs) + 1)]
    spelled = one_of(rng, [CHAIN_WORDS, CHAIN_WORDS, CHAIN_WORDS, CHAIN_MARKS, CHAIN_TYPED])
    space = "" if spelled is CHAIN_MARKS and chance(rng, 0.4) else " "
    text, expression = numbers[0]
    for sign, (t, x) in zip(signs, numbers[1:]):
        text += space + spelled[sign] + space + t
        expression += f" {sign} {x}"
    return noun_framed(rng, text, expression)


def listed(rng, texts):
    """3, 4 and 5"""
    return ", ".join(texts[:-1]) + one_of(rng, [" and ", " and ", ", and "]) + texts[-1]


def total(rng):
    """The sum, the product or the average of several numbers."""
    words = one_of(rng, [0, 0, 0.15, 1])
    numbers = [small(rng, words, 0.1) for _ in range(between(rng, 3, 4))]
    these, digits = listed(rng, [t for t, _ in numbers]), [x for _, x in numbers]
    kind = rng.random()
    if kind < 0.3:
        return noun_framed(rng, expand(rng, "[the sum of|the total of] $l", l=these), " + ".join(digits))
    if kind < 0.65:
        verb = one_of(rng, ["add $l", "add up $l", "sum $l", "sum up $l", "total $l", "add $l together", "tot up $l", "find the sum of $l"])
        return verb_framed(rng, expand(rng, verb, l=these), " + ".join(digits))
    if kind < 0.75:
        return verb_framed(rng, "multiply " + these, " * ".join(digits[:3])) if len(digits) == 3 else total(rng)
    if chance(rng, 0.4):
        numbers = numbers[:2]
        these, digits = f"{numbers[0][0]} and {numbers[1][0]}", digits[:2]
    average = "(" + " + ".join(digits) + f") / {len(digits)}"
    if kind < 0.9:
        return noun_framed(rng, expand(rng, "the [average|mean|average] of $l", l=these), average, ["The average is $r.", "On average $r."])
    return verb_framed(rng, expand(rng, "[average $l|find the average of $l|take the average of $l]", l=these), average, ["The average is $r."])


FIRST_STEPS = [
    ("add $a and $b", "+"), ("add $a to $b", "+"), ("multiply $a by $b", "*"), ("multiply $a and $b", "*"), ("subtract $b from $a", "-"),
    ("take $b from $a", "-"), ("divide $a by $b", "/"), ("take $a plus $b", "+"), ("take $a times $b", "*"), ("start with $a", ""),
    ("take $a", ""), ("begin with $a", ""), ("double $a", "2"), ("halve $a", "h"), ("triple $a", "3"), ("square $a", "s"),
    ("take half of $a", "h"),
]  # fmt: skip
NEXT_STEPS = [
    ("add $b", "+"), ("add $b to it", "+"), ("subtract $b", "-"), ("take away $b", "-"), ("take off $b", "-"),
    ("multiply [it|that|the result] by $b", "*"), ("multiply by $b", "*"), ("divide [it|that|the result] by $b", "/"), ("divide by $b", "/"),
    ("double [it|that|the result]", "2"), ("halve [it|that|the result]", "h"), ("triple [it|that]", "3"), ("add another $b", "+"),
    ("add $b on top", "+"),
]  # fmt: skip


def followed(expression, sign, number):
    """The expression and one step more, in brackets if they are needed."""
    sign, number = {"2": ("*", "2"), "3": ("*", "3"), "h": ("/", "2")}.get(sign, (sign, number))
    if sign in "*/" and re.search(r" [+-] ", expression):
        expression = f"({expression})"
    return f"{expression} {sign} {number}"


def steps(rng):
    """Add 3 and 4 and double it."""
    words = one_of(rng, [0, 0, 0.15, 1])
    (a, x), (b, y) = small(rng, words), small(rng, words)
    pattern, sign = one_of(rng, FIRST_STEPS)
    text = expand(rng, pattern, a=a, b=b)
    if sign == "s":
        expression = f"{x} * {x}"
    else:
        expression = followed(x, sign, y) if sign else x
    count = one_of(rng, [2, 2, 3]) if sign == "" else one_of(rng, [1, 1, 1, 2])
    for i in range(count):
        if "(" in expression:
            break
        pattern, sign = one_of(rng, NEXT_STEPS)
        b, y = small(rng, words, 0)
        link = ", " if i + 1 < count and count > 1 else one_of(rng, [" and ", " and then ", ", then ", " and "])
        text += link + expand(rng, pattern, b=b.replace("{a ", "{one ") if "another" in pattern else b)
        expression = followed(expression, sign, y)
    if " " not in expression:
        return steps(rng)
    return verb_framed(rng, text, expression)


BRACKETS = [
    ("n", "[open|left] [bracket|parenthesis|paren] $a plus $b [close|closed] [bracket|parenthesis|paren] times $c", "($a + $b) * $c"),
    ("n", "open [bracket|parenthesis] $a minus $b close [bracket|parenthesis] times $c", "($a - $b) * $c"),
    ("n", "open [bracket|parenthesis] $a plus $b close [bracket|parenthesis] divided by $c", "($a + $b) / $c"),
    ("n", "$c times open [bracket|parenthesis] $a plus $b close [bracket|parenthesis]", "$c * ($a + $b)"),
    ("n", "[bracket|brackets] $a plus $b [close bracket|end bracket] times $c", "($a + $b) * $c"),
    ("n", "$a plus $b in [brackets|parentheses], times $c", "($a + $b) * $c"),
    ("n", "$c times, in [brackets|parentheses], $a plus $b", "$c * ($a + $b)"), ("n", "($a + $b) * $c", "($a + $b) * $c"),
    ("n", "($a+$b)*$c", "($a + $b) * $c"), ("n", "($a - $b) * $c", "($a - $b) * $c"), ("n", "($a+$b)/$c", "($a + $b) / $c"),
    ("n", "($a - $b) / $c", "($a - $b) / $c"), ("n", "$c * ($a + $b)", "$c * ($a + $b)"), ("n", "$c x ($a - $b)", "$c * ($a - $b)"),
    ("n", "$c*($a+$b)", "$c * ($a + $b)"), ("n", "$c / ($a + $b)", "$c / ($a + $b)"), ("n", "$c - ($a + $b)", "$c - ($a + $b)"),
    ("n", "($a + $b) x $c", "($a + $b) * $c"), ("n", "($a + $b) ÷ $c", "($a + $b) / $c"),
    ("n", "$c times the sum of $a and $b", "$c * ($a + $b)"), ("n", "$c times the difference between $a and $b", "$c * ($a - $b)"),
    ("n", "[half|half of] the sum of $a and $b", "($a + $b) / 2"), ("n", "a third of the sum of $a and $b", "($a + $b) / 3"),
    ("n", "[half|half of] the difference between $a and $b", "($a - $b) / 2"), ("n", "double the sum of $a and $b", "($a + $b) * 2"),
    ("n", "$c divided by the sum of $a and $b", "$c / ($a + $b)"), ("n", "$c minus the product of $a and $b", "$c - $a * $b"),
    ("n", "$c plus the product of $a and $b", "$c + $a * $b"), ("n", "$c minus the sum of $a and $b", "$c - ($a + $b)"),
    ("v", "multiply the sum of $a and $b [by|with] $c", "($a + $b) * $c"), ("v", "divide the sum of $a and $b by $c", "($a + $b) / $c"),
    ("v", "multiply the difference [between|of] $a and $b by $c", "($a - $b) * $c"),
    ("v", "divide the product of $a and $b by $c", "$a * $b / $c"), ("v", "divide the difference between $a and $b by $c", "($a - $b) / $c"),
    ("v", "double the sum of $a and $b", "($a + $b) * 2"), ("v", "subtract the product of $a and $b from $c", "$c - $a * $b"),
    ("v", "subtract the sum of $a and $b from $c", "$c - ($a + $b)"), ("v", "multiply $c by the sum of $a and $b", "$c * ($a + $b)"),
    ("v", "halve the sum of $a and $b", "($a + $b) / 2"), ("v", "divide $c by the sum of $a and $b", "$c / ($a + $b)"),
    ("v", "triple the sum of $a and $b", "($a + $b) * 3"),
]  # fmt: skip


def bracketed(rng):
    kind, pattern, expression = one_of(rng, BRACKETS)
    words = 0 if "(" in pattern else one_of(rng, [0, 0.15, 1])
    (a, x), (b, y), (c, z) = small(rng, words), small(rng, words), small(rng, words, 0)
    if float(x) <= float(y):
        (a, x), (b, y) = (b, y), (a, x)
    if x == y and "-" in expression:
        return bracketed(rng)
    digits = expand(rng, expression, a=x, b=y, c=z)
    return (noun_framed if kind == "n" else verb_framed)(rng, expand(rng, pattern, a=a, b=b, c=c), digits)


PERCENT = framed(
    question=[
        "how much [is|would be] a $p tip on $m", "what's [a|the] $p tip on $m", "how much [tip is|do I tip with] $p on $m",
        "how much should I tip on $m at $p", "what's the tip on $m at $p", "how big is a $p tip on $m", "how much do I save with $p off $m",
        "how much is the discount if I get $p off $m", "$p off $m, how much do I save", "what's a $p discount on $m worth",
        "how much is $p [tax|sales tax|VAT] on $m", "what's the [tax|sales tax|VAT] on $m at $p", "what's $p interest on $m",
        "the bill [is|was|came to] $m and I want to tip $p, how much is [that|the tip]", "the bill is $m, what's a $p tip",
        "I owe $p of $m, how much is that", "how many are $p of $n", "of $n people $p are children, how many is that",
        "if $p of $n people come, how many is that", "what do I get for $p of $n", "how much is a $p commission on $m",
        "how much would I get as a $p share of $m", "from $m I have to pay $p, how much is that", "if I take $p of $n, what do I get",
    ],
    command=[
        "take $p of $n", "calculate a $p tip on $m", "work out the tip on $m at $p", "calculate a tip of $p on $m", "figure out a $p tip for $m",
        "tell me how much $p of $n is", "find $p of $n", "get me $p of $n", "tell me the tip for $m at $p", "find out $p of $n",
    ],
    statement=[
        "$p tip on $m", "I want to tip $p on $m", "I'd like to leave $p on a bill of $m as a tip", "I need $p of $n", "I need $p as a tip on $m",
        "tip for $m at $p", "$p from $n", "I put aside $p of $m, I'd like to know how much that is", "$p out of $n",
    ],
)  # fmt: skip


def percentage(rng):
    n = one_of(rng, [5, 10, 15, 20, 25, 50, 75, 30, 19, 18, 12, 8, 7, 3, between(rng, 1, 99), between(rng, 1, 99), between(rng, 100, 200)])
    words = one_of(rng, [0, 0, 1])
    p, x = said(rng, n, words)
    if chance(rng, 0.08):
        p, x = decimal(rng)
    digits = not words and re.fullmatch(r"\{[\d.]+\}", p)
    p += one_of(rng, ["%", "%", " percent", " %"]) if digits else one_of(rng, [" percent", " percent", " per cent"])
    if chance(rng, 0.6):
        a, y = operand(rng, words)
        if chance(rng, 0.7):
            return noun_framed(rng, expand(rng, "$p of [|||a total of] $a", p=p, a=a), f"{y} * {x} / 100")
    else:
        a, y = operand(rng, words)
    m, z = price(rng, 400)
    form, pattern = one_of(rng, PERCENT)
    text = expand(rng, pattern, p=p, m=m, n=a)
    if re.search(r"\ba \{(8|11|18|8\d)(\.\d+)?\}|\ba \{(eight|eleven)", text):
        text = re.sub(r"\ba (\{(8|11|18|eight|eleven))", r"an \1", text)
    return calculation(rng, text, form, f"{z if '$m' in pattern else y} * {x} / 100")


PARTS = [
    ("half of $a", "/ 2"), ("half of $a", "/ 2"), ("one half of $a", "/ 2"), ("a half of $a", "/ 2"), ("a third of $a", "/ 3"),
    ("one third of $a", "/ 3"), ("a quarter of $a", "/ 4"), ("one quarter of $a", "/ 4"), ("a fourth of $a", "/ 4"), ("a fifth of $a", "/ 5"),
    ("one fifth of $a", "/ 5"), ("a sixth of $a", "/ 6"), ("an eighth of $a", "/ 8"), ("a tenth of $a", "/ 10"), ("one tenth of $a", "/ 10"),
    ("double $a", "* 2"), ("twice $a", "* 2"), ("the double of $a", "* 2"), ("$a doubled", "* 2"), ("$a halved", "/ 2"), ("triple $a", "* 3"),
    ("$a tripled", "* 3"), ("$a squared", "s"), ("$a squared", "s"), ("the square of $a", "s"), ("$a times itself", "s"),
    ("$a to the power of [two|2]", "s"), ("$a^2", "s"), ("$a cubed", "c"), ("$a cubed", "c"), ("the cube of $a", "c"),
    ("$a to the power of [three|3]", "c"), ("$a to the third power", "c"), ("1/2 of $a", "/ 2"), ("1/4 of $a", "/ 4"), ("1/3 of $a", "/ 3"),
    ("a seventh of $a", "/ 7"), ("a hundredth of $a", "/ 100"),
]  # fmt: skip
PART_VERBS = [
    ("halve $a", "/ 2"), ("double $a", "* 2"), ("triple $a", "* 3"), ("quadruple $a", "* 4"), ("square $a", "s"), ("cube $a", "c"),
    ("divide $a in half", "/ 2"), ("cut $a in half", "/ 2"), ("split $a in half", "/ 2"), ("take half of $a", "/ 2"), ("take a third of $a", "/ 3"),
    ("take a quarter of $a", "/ 4"), ("multiply $a by itself", "s"), ("divide $a in two", "/ 2"), ("split $a in two", "/ 2"),
    ("find half of $a", "/ 2"),
    ("find a third of $a", "/ 3"), ("find the square of $a", "s"), ("raise $a to the power of [2|two]", "s"), ("split $a in three", "/ 3"),
]  # fmt: skip


def part(rng):
    verbal = chance(rng, 0.3)
    pattern, step = one_of(rng, PART_VERBS if verbal else PARTS)
    words = one_of(rng, [0, 0, 1])
    if step in "sc":
        a, x = said(rng, one_of(rng, [between(rng, 2, 20), between(rng, 2, 99)] + [between(rng, 2, 999)] * (step == "s")), words)
        a, x = decimal(rng) if chance(rng, 0.06) and "^" not in pattern else (a, x)
        expression = " * ".join([x] * (2 if step == "s" else 3))
    else:
        a, x = operand(rng, words, 0.12)
        expression = f"{x} {step}"
    return (verb_framed if verbal else noun_framed)(rng, expand(rng, pattern, a=a), expression)


# Word problems

THINGS = re.findall(r"\S+", """
eggs apples oranges bananas cookies muffins pancakes candles chairs plates glasses cups forks spoons bottles cans tickets books pages
stamps coins marbles balloons pencils pens crayons stickers cards photos emails messages tiles bricks boards screws nails bolts batteries bulbs
socks shirts towels pillows blankets eggs lemons limes onions potatoes carrots tomatoes peppers cucumbers strawberries grapes nuts almonds walnuts
sandwiches pizzas burgers sausages meatballs dumplings cupcakes brownies donuts chocolates sweets candies lollipops bagels rolls croissants pretzels
tulips roses plants seeds seedlings trees pots eggs chickens sheep cows goats rabbits fish hens bees toys blocks puzzles dolls cars bikes buses
boxes bags packs crates parcels letters envelopes invitations flyers posters chapters exercises questions points lives levels songs videos files
pills tablets capsules vitamins teabags napkins straws jars lids magnets buttons beads ribbons shells pebbles sticks logs planks panels posts
meatballs pears plums peaches cherries mangoes avocados dates figs olives pickles radishes beans peas wafers crackers waffles tarts pies
scones
""")
PEOPLE = re.findall(r"\S+", """
Tom Anna Ben Lucy Mia Noah Emma Liam Olivia Jack Ava Leo Ella Max Zoe Sam Nina Paul Clara Omar Priya Chen Maria Ivan Sofia Yusuf Aisha
Kofi Lena Hugo Ruth Martha Oscar Dylan Grace Felix Ingrid Marco Elena Kenji Fatima Ravi Bella Theo Iris Dad Mum Mom Grandma Grandpa
""")
CONTAINERS = ["boxes", "bags", "packs", "crates", "cartons", "trays", "baskets", "jars", "packets", "shelves", "rows", "bowls", "tins", "cases",
              "drawers"]
GROUPS = ["people", "friends", "kids", "children", "guests", "colleagues", "neighbors", "students", "roommates", "cousins", "players", "adults",
          "families"]
GOODS = re.findall(r"\S+", """
coffees teas beers pizzas burgers sandwiches smoothies tickets coffees juices sodas books notebooks T-shirts candles plants croissants
muffins bagels salads soups wraps tacos donuts cupcakes lamps chairs cushions mugs glasses plates bottles pens batteries bulbs brushes rolls
magazines postcards stamps bracelets keychains puzzles hats scarves gloves socks towels pillows curtains tiles planks pots
""")
LEFT = ["That leaves $r.", "$r left.", "You have $r left.", "That leaves you with $r.", "There should be $r left."]
ALL = ["That's $r altogether.", "$r in total.", "That makes $r in total.", "$r altogether.", "You have $r in all."]
EACH = ["$r each.", "That's $r each.", "Everyone gets $r.", "$r per head.", "Each gets $r."]
PAY = ["$r each.", "That's $r each.", "Everyone pays $r.", "$r per person.", "That comes to $r per person.", "Each pays $r."]
COST = ["That comes to $r.", "That costs $r.", "$r in total.", "That's $r altogether.", "You pay $r."]

# (form, text, expression, replies): $a is the larger number, $b the smaller, $s a small one, $m and $k money, $m the larger; $q = $a that $s divides
PROBLEMS = [
    ("question", ("I have $a $t and [use|use up|eat|lose|sell|give away|throw out|need] $b, how many [are left|do I have left|remain|will "
     "be left]"), "$a - $b", LEFT),
    ("question", "I had $a $t and [used|ate|lost|sold|gave away|broke|dropped] $b, how many [are left|do I have left|do I have now|remain]",
     "$a - $b", LEFT),
    ("question", "if I have $a $t and [use|give away|sell|lose|eat] $b, how many [are left|do I have left|do I still have]", "$a - $b", LEFT),
    ("question", "how many $t are left if I [take|use|remove|eat|sell] $b [of|out of] $a", "$a - $b", LEFT),
    ("question", "there were $a $t and $b are gone, how many [are left|are still there|remain]", "$a - $b", LEFT),
    ("question", "there are $a $t in the [box|bag|bowl|basket|cupboard|fridge|jar] and I take out $b, how many [stay|are left|remain]",
     "$a - $b", LEFT),
    ("question", "$n has $a $t and gives $o $b [of them|], how many does $n have left", "$a - $b", ["$n has $r left.", "That leaves $r."]),
    ("question", "$n had $a $t and lost $b, how many [are left|has $n got now]", "$a - $b", ["$n has $r left.", "That leaves $r."]),
    ("question", "we need $a $t and [already|] have $b [already|], how many [are missing|more do we need|do we still need]",
     "$a - $b", ["$r more.", "You still need $r.", "$r are missing."]),
    ("question", "I need $a $t and have [only|] $b, how many [are missing|more do I need|do I still need]",
     "$a - $b", ["$r more.", "You still need $r.", "$r are missing."]),
    ("question", "the book has $a pages and I've read $b, how many [are left|pages are left|to go]",
     "$a - $b", ["$r to go.", "$r left.", "You have $r pages to go."]),
    ("question", "$a minutes [of film|in all] and $b are over, how many [are left|remain]", "$a - $b", LEFT),
    ("question", "the trip is $a [kilometers|miles] and we've done $b, how [far|much] [is left|do we still have to go]",
     "$a - $b", ["$r to go.", "Another $r.", "$r left."]),
    ("question", "out of $a [guests|invited guests|students|players|members] $b can't come, how many [are coming|come|will be there]",
     "$a - $b", ["$r are coming.", "That leaves $r."]),
    ("question", "I weighed $a [pounds|kilos] and lost $b, what do I weigh now", "$a - $b", ["Now it's $r.", "That's $r now."]),
    ("question", "I have $m [in my wallet|in cash|to spend|on me] and spend $k, how much [is left|do I have left|remains]", "$m - $k", LEFT),
    ("question", "I had $m and [spent|paid] $k, [how much is left|what do I have left|what's left]", "$m - $k", LEFT),
    ("question", "I pay with $m and it costs $k, how much change do I get", "$m - $k", ["You get $r back.", "Your change is $r.", "$r change."]),
    ("question", "how much change do I get from $m if [I pay|it costs|the bill is] $k",
     "$m - $k", ["You get $r back.", "Your change is $r.", "$r change."]),
    ("question", "what's my change from $m [for|on|if it was] $k", "$m - $k", ["You get $r back.", "Your change is $r.", "$r change."]),
    ("question", "my budget is $m and I've spent $k, what's left", "$m - $k", LEFT),
    ("question", "it was $m and now it's $k, how much [cheaper is it|do I save|less is that]", "$m - $k", ["You save $r.", "That's $r less."]),
    ("question", "I have a coupon for $k [off|] and the bill is $m, what do I pay", "$m - $k", ["You pay $r.", "That leaves $r to pay."]),
    ("question", "someone born in $y is how old in $z", "$z - $y", ["That's $r years.", "$r years old.", "They turn $r."]),
    ("question", "I was born in $y, how old [am I|will I be|do I turn] in $z",
     "$z - $y", ["You turn $r.", "$r years old.", "That makes you $r."]),
    ("question", "how many years are there between $y and $z", "$z - $y", ["$r years.", "That's $r years."]),
    ("question", "the house was built in $y, how old is it in $z", "$z - $y", ["It's $r years old.", "$r years."]),
    ("question", "how many years is it from $y to $z", "$z - $y", ["$r years.", "That's $r years."]),
    ("question", ("I have $a $t and [buy|get|find|make|bake|receive|add] $b more, how many [do I have|are there|is that] [now|in "
     "total|altogether|]"), "$a + $b", ALL),
    ("question", "I have $b $t and [buy|get|find|bake] another $a, how many [do I have|is that|are there] [now|in total|altogether]",
     "$b + $a", ALL),
    ("question", "$n has $a $t and $o has $b, how many [do they have|is that] [together|altogether|in total]",
     "$a + $b", ["Together they have $r.", "That's $r altogether."]),
    ("question", "there are $b $t here and $a over there, how many [are there|is that] [in all|altogether|in total]", "$b + $a", ALL),
    ("question", "$b $t plus $a $u, how many things is that [|altogether|in total]", "$b + $a", ALL),
    ("question", "$a [adults|grown-ups] and $b [kids|children] are coming, how many people is that",
     "$a + $b", ["That's $r people.", "$r people."]),
    ("question", "I walked $b [kilometers|miles] yesterday and $a today, how many [is that|in total|altogether]", "$b + $a", ALL),
    ("question", "it costs $k plus $m [shipping|for delivery|postage|tax], how much is that [altogether|in total]", "$k + $m", COST),
    ("question", "one is $k and the other [is|costs] $m, what [do they cost together|do I pay|is the total]", "$k + $m", COST),
    ("question", ("I spent $m on [food|groceries|clothes|gas|books|gifts] and $k on [drinks|parking|taxis|lunch|flowers], [how much is "
     "that|what's the total|how much did I spend]"), "$m + $k", COST),
    ("question", "how much is [dinner|lunch|the hotel|the train|a meal] for $m and [dessert|a taxi|a ticket|drinks] for $k", "$m + $k", COST),
    ("question", "how much do I pay for $s $g at $k each", "$s * $k", COST),
    ("question", "how much are $s $g at $k [each|apiece|a piece]", "$s * $k", COST),
    ("question", "[what|how much] do $s $g cost at $k [each|apiece]", "$s * $k", COST),
    ("question", "$s $g at $k each, [how much is that|what does that come to|what's the total|what do I pay]", "$s * $k", COST),
    ("question", "$s $g for $k each, [how much is that|what does that come to|what's the total|what do I owe]", "$s * $k", COST),
    ("question", "I [buy|bought|want|need|ordered] $s $g at $k each, [what's the total|how much is that|what do I pay|what does it cost]",
     "$s * $k", COST),
    ("question", "if one [ticket|coffee|book|bottle|pizza|chair|tile|plant] costs $k, how much are $s", "$k * $s", COST),
    ("question", ("a [ticket|coffee|book|bottle|pizza|chair|burger|plant] [is|costs] $k, [how much are|what do I pay for|what would I pay "
     "for] $s [of them|]"), "$k * $s", COST),
    ("question", "[what|how much] is [the rent|gym|parking|my phone bill|insurance] for $s months at $m a month", "$s * $m", COST),
    ("question", "I earn $k an hour and work $b hours, how much [is that|do I get|do I make]",
     "$k * $b", ["You make $r.", "That's $r.", "You earn $r."]),
    ("question", "I work $b hours at $k an hour, [what do I earn|how much is that|what do I get]",
     "$b * $k", ["You make $r.", "That's $r.", "You earn $r."]),
    ("question", "I save $m a week, how much is that in $s weeks", "$m * $s", ["That's $r.", "You save $r."]),
    ("question", "$k a month for $s months, [how much is that|what's that in total|what does it add up to]", "$k * $s", COST),
    ("question", "$k [a|per] night for $s nights, how much is that", "$k * $s", COST),
    ("question", "how many $t are in $s $c of $b", "$s * $b", ["That's $r.", "$r in total.", "There are $r."]),
    ("question", "how many $t do I have in $s $c with $b each", "$s * $b", ["That's $r.", "$r in total.", "There are $r."]),
    ("question", "I have $s $c with $b $t each, how many [is that|are there|do I have] [altogether|in total|]", "$s * $b", ALL),
    ("question", "there are $s $c and $b $t in each, how many [is that|are there|] [altogether|in total|in all]", "$s * $b", ALL),
    ("question", "$s $c of $b $t, how many [is that|are there|do I have]", "$s * $b", ALL),
    ("question", "$s $p get $b $t each, how many do I need", "$s * $b", ["You need $r.", "$r.", "That takes $r."]),
    ("question", "how many $t do I need for $s $p if each gets $b", "$s * $b", ["You need $r.", "$r.", "That takes $r."]),
    ("question", "every one of $s $p brings $b $t, how many [is that|do we have]", "$s * $b", ALL),
    ("question", "I [run|walk|cycle|swim] $b [kilometers|miles] a day, how far is that in $s days", "$b * $s", ["That's $r.", "$r in total."]),
    ("question", "I read $b pages a day, how many is that in $s days", "$b * $s", ["$r pages.", "That's $r pages."]),
    ("question", "I take $b [pills|tablets|drops] a day, how many do I need for $s days", "$b * $s", ["You need $r.", "$r."]),
    ("question", "a room is $b by $s [meters|feet], what's the area", "$b * $s", ["The area is $r.", "$r square."]),
    ("question", "what's the area of a [room|garden|wall|lawn|rectangle|terrace|carpet] of $b by $s", "$b * $s", ["The area is $r."]),
    ("question", "I drive at $b an hour for $s hours, how far [do I get|is that]", "$b * $s", ["You get $r far.", "That's $r.", "$r."]),
    ("question", "$q $t shared [between|among|by] $s $p, how many does each [get|have]", "$q / $s", EACH),
    ("question", "I [share|divide|split] $q $t [between|among] $s $p, how many does [each|everyone|each one] get", "$q / $s", EACH),
    ("question", "if $q $t are shared [between|among|by] $s $p, how many [does each get|does everyone get|are there for each]", "$q / $s", EACH),
    ("question", "how many $t does each [get|have] if I [share|split|divide] $q [between|among] $s $p", "$q / $s", EACH),
    ("question", "how many $t per person are $q for $s $p", "$q / $s", EACH),
    ("question", "$q $t go into $s $c [evenly|equally], how many [in each|are in each]", "$q / $s", ["$r in each.", "$r each."]),
    ("question", "I put $q $t into $s $c [evenly|equally], how many [go in each|are in each]", "$q / $s", ["$r in each.", "$r each."]),
    ("question", "$q pages in $s days, how many [a day|per day|is that a day]", "$q / $s", ["$r a day.", "That's $r a day."]),
    ("question", "I have to [read|learn|write] $q pages in $s days, how many [a day is that|is that per day|a day]",
     "$q / $s", ["$r a day.", "That's $r a day."]),
    ("question", "$s $g cost $m, how much is one", "$m / $s", ["One is $r.", "$r each.", "One costs $r."]),
    ("question", "I paid $m for $s $g, what [did one cost|is that each|was it per piece]", "$m / $s", ["One is $r.", "$r each."]),
    ("question", "I drove $q [kilometers|miles] in $s hours, how many [is that an hour|per hour is that]",
     "$q / $s", ["$r an hour.", "That's $r an hour."]),
    ("question", "how many $t are there per [row|table|box|shelf] if $q are spread over $s", "$q / $s", ["$r each.", "$r."]),
    ("statement", "I have $a $t and need $b for [the cake|the kids|later|a recipe|work|school], I wonder how many are left", "$a - $b", LEFT),
    ("statement", "I need to know how many $t are in $s $c of $b", "$s * $b", ["That's $r.", "There are $r."]),
    ("statement", "I'd like to know what $s $g cost at $k each", "$s * $k", COST),
    ("statement", "$s $g at $k each", "$s * $k", COST),
    ("statement", "$s $g, $k each, I need the total", "$s * $k", COST),
    ("command", "tell me how many $t are left if I use $b of $a", "$a - $b", LEFT),
    ("command", "work out what $s $g cost at $k each", "$s * $k", COST),
    ("command", "work out how much change I get from $m for $k", "$m - $k", ["You get $r back.", "Your change is $r."]),
    ("command", "figure out how many $t everyone gets when $s $p share $q", "$q / $s", EACH),
    ("command", "calculate the price of $s $g at $k each", "$s * $k", COST),
    ("command", "calculate the area of a [room|field|wall|table] of $b by $s", "$b * $s", ["The area is $r."]),
    ("command", "tell me how many $t I have with $s $c of $b", "$s * $b", ALL),
]  # fmt: skip


def natural(rng, n, words):
    """A count within a word problem: small ones are often spelled out."""
    return said(rng, n, 0.55 if n <= 12 and words else words * 0.25)


def problem(rng):
    form, pattern, expression, replies = one_of(rng, PROBLEMS)
    words = one_of(rng, [0, 1])
    small_number = one_of(rng, [between(rng, 2, 6), between(rng, 3, 12), between(rng, 2, 30)])
    high = one_of(rng, [12, 40, 40, 200, 1000])
    larger = between(rng, 5, high)
    smaller = between(rng, 2, larger - 1)
    cents = [price(rng, one_of(rng, [12, 60, 300])) for _ in range(2)]
    if float(cents[0][1]) < float(cents[1][1]):
        cents.reverse()
    year = between(rng, 1900, 2015)
    drawn = {
        "a": natural(rng, larger, words), "b": natural(rng, smaller, words), "s": natural(rng, small_number, words), "m": cents[0], "k": cents[1],
        "q": natural(rng, small_number * between(rng, 2, 15), words), "y": (copied(str(year)),) * 2,
        "z": (copied(str(year + between(rng, 5, 110))),) * 2,
    }  # fmt: skip
    digits = {k: v[1].strip("{}") for k, v in drawn.items()}
    n, t = one_of(rng, PEOPLE), one_of(rng, THINGS)
    o, u = one_of(rng, PEOPLE), one_of(rng, THINGS)
    if n == o or t == u:
        return problem(rng)
    words_in = {"n": n, "o": o, "t": t, "u": u, "c": one_of(rng, CONTAINERS), "p": one_of(rng, GROUPS), "g": one_of(rng, GOODS)}
    text = expand(rng, pattern, **{k: v[0] for k, v in drawn.items()}, **words_in)
    if form == "question" and pattern.startswith(("I ", "we ", "the ")) and chance(rng, 0.25):
        text = one_of(rng, ["if ", "say ", "okay so ", "so ", "suppose "]) + text
    return calculation(rng, text, form, expand(rng, expression, **digits), [r.replace("$n", n) for r in replies])


SHARES = framed(
    question=[
        "what's $m split [between|among|by] $s [|$p|people]", "how much is $m split $s ways", "what's $m $s ways",
        "what does [each|everyone|each person] pay if we [split|share|divide] $m [between|among] $s [|$p|people]",
        "how much [each|per person|per head|for each] if we split $m [between|among] $s", "what is $m between $s [people|$p|of us]",
        ("[the bill|the check|dinner|lunch|the total|the meal|the gift|the taxi|the cabin] [is|was|came to] $m and there are $s of us, "
         "[what does everyone pay|how much each|how much is that each|what do we each owe]"),
        "[the bill|the check|dinner|lunch|the rent|the total] [is|was|came to] $m, what's that [split|divided] by $s",
        "[dinner|lunch|the bill|the cab|the hotel] [was|is] $m, how much each for $s [people|$p|of us]",
        "$m [between|shared by|split between|for] $s [people|$p], how much [each|is that each|per person|does everyone pay]",
        "$m divided [between|among] $s [people|$p] is how much [each|per head|apiece]", "how much does each of $s [people|$p] get out of $m",
        "if we split $m [between|among] $s [people|of us|$p], how much [does everyone pay|is it each|does each pay|is that per person]",
        "we have to pay $m and [want to|] split it [between|among] $s, what's [each share|that each|it per person]",
        "we owe $m, what's that for each of the $s of us", "what's each person's share of $m for $s [people|$p]",
        "can we split $m [between|among] $s [people|$p]", "would you mind splitting $m [between|by|among] $s [people|$p|]",
    ],
    command=[
        "split $m [between|among|by] $s [|||$p|people]", "divide $m [between|among] $s [|$p|people]", "share $m [between|among] $s [|$p|people]",
        "split [a|the] bill of $m [between|among] $s [|$p|people]", "split [a|the] bill of $m $s ways", "split $m $s ways",
        "divide [a|the|our] [check|bill|rent|total] of $m by $s", "divide $m equally [between|among] $s [$p|people]",
        "split $m [evenly|equally|fairly] [between|among] $s [|$p|people]", "tell me what each of us pays if we split $m [between|by|among] $s",
        "work out $m [between|split by|shared by] $s [$p|people]", "work out everyone's share of $m for $s [$p|people]",
        "calculate $m per person for $s [$p|people]", "figure out the share of each for $m between $s [$p|people]",
    ],
    statement=[
        "$m split [between|among] $s", "$m split $s ways", "$m between $s [people|$p]",
        "we want to split $m [between|among] $s [people|$p|of us]", "I want to [split|share|divide] $m [between|among] $s [people|$p]",
        "[the bill|the check|dinner] is $m and we're splitting it $s ways", "let's split $m [between|among|by] $s [|people|$p]",
        "we're sharing a bill of $m [between|among] $s [people|$p]", "I need to divide $m [between|among] $s [people|$p]",
        "bill of $m, $s people", "$m, $s people, split it evenly", "we should each pay our share of $m, there are $s of us",
    ],
)  # fmt: skip


def sharing(rng):
    form, pattern = one_of(rng, SHARES)
    s = one_of(rng, [between(rng, 2, 6), between(rng, 2, 12), between(rng, 3, 40)])
    m, x = price(rng, one_of(rng, [100, 300, 3000]))
    if "." not in x and chance(rng, 0.7):
        x = str(s * between(rng, 3, 60))
        m = copied(x) + one_of(rng, ["", "", "", " dollars", " euros", " pounds", " bucks"])
    count, y = said(rng, s, one_of(rng, [0, 0, 1]))
    return calculation(rng, expand(rng, pattern, m=m, s=count, p=one_of(rng, GROUPS)), form, f"{x} / {y}", PAY)


PRICES = [
    ("$s times $k", "$s * $k"), ("$m plus $k", "$m + $k"), ("$m minus $k", "$m - $k"), ("$m and $k together", "$m + $k"),
    ("$m plus $k plus $l", "$m + $k + $l"), ("$m divided by $s", "$m / $s"), ("$s lots of $k", "$s * $k"), ("$m less $k", "$m - $k"),
    ("$k plus $m", "$k + $m"),
]  # fmt: skip


def money(rng):
    """How much is 3 times 4.50."""
    x, expression = one_of(rng, PRICES)
    (m, p), (k, q), (extra, r) = price(rng, 300), price(rng, 30), price(rng, 30)
    if float(p) < float(q):
        (m, p), (k, q) = (k, q), (m, p)
    s, t = said(rng, between(rng, 2, 20), one_of(rng, [0, 1]))
    return noun_framed(rng, expand(rng, x, m=m, k=k, l=extra, s=s), expand(rng, expression, m=p, k=q, l=r, s=t))


KINDS = [pair] * 20 + [problem] * 22 + [percentage] * 10 + [part] * 9 + [sharing] * 9 + [chain] * 7 + [steps] * 7
KINDS += [total] * 5 + [bracketed] * 5 + [money] * 4


def calculate(rng):
    while True:
        request = one_of(rng, KINDS)(rng)
        value = request.results[0].get("result", 0)
        if abs(value) < 1e11 and (value == 0 or abs(value) >= 0.01):
            return request


CHANGED_NUMBER = framed(
    question=[
        "and with $b instead of $a", "what about $b instead of $a", "how about $b instead of $a", "what if it's $b instead of $a",
        "and if it's $b, not $a", "what would it be with $b instead of $a", "how much would it be with $b rather than $a",
        "and what do I get with $b in place of $a", "what's it with $b instead of $a", "and the same with $b instead of $a",
        "what if the $a was $b", "and if the $a were $b",
    ],
    command=[
        "make it $b instead of $a", "make that $b instead of $a", "change the $a to $b", "replace $a [by|with] $b",
        "try [it|that|the same] with $b instead of $a", "do [it|that|the same] with $b instead of $a", "use $b instead of $a",
        "put $b instead of $a",
    ],
    statement=[
        "sorry, I meant $b, not $a", "no, $b, not $a", "I meant $b instead of $a", "wait, $b instead of $a", "now with $b instead of $a",
        "the same with $b instead of $a", "oops, $b and not $a", "again with $b instead of $a", "correction, $b instead of $a",
        "it should be $b, not $a", "actually $b, not $a", "I said $a but it's $b", "not $a but $b",
    ],
)  # fmt: skip
CHANGED_PERCENT = framed(
    question=[
        "and $b percent", "and $b%", "what about $b percent", "how about $b%", "and at $b percent", "what if it's $b%",
    ],
    command=[
        "make it $b percent",
    ],
    statement=[
        "now $b percent", "no, $b percent", "$b percent instead",
    ],
)  # fmt: skip
CHANGED_BASE = framed(
    question=[
        "and of $b", "what about of $b", "and the same of $b", "and what's it of $b",
    ],
    statement=[
        "now of $b", "the same percentage of $b",
    ],
)  # fmt: skip


def calculate_again(rng, arguments):
    """The last calculation with one of its numbers changed."""
    expression = arguments["expression"]
    percent = re.fullmatch(r"(\S+) \* (\S+) / 100", expression)
    b, y = said(rng, one_of(rng, [between(rng, 2, 30), between(rng, 2, 120)]), one_of(rng, [0, 0, 1]))
    if percent and chance(rng, 0.6):
        if chance(rng, 0.5):
            (form, pattern), new = one_of(rng, CHANGED_PERCENT), f"{percent[1]} * {y} / 100"
            if "%" in pattern:
                b = copied(y)
        else:
            (b, y), (form, pattern) = operand(rng), one_of(rng, CHANGED_BASE)
            new = f"{y} * {percent[2]} / 100"
        if new == expression:
            return None
        return calculation(rng, expand(rng, pattern, b=b), form, new)
    numbers = re.findall(r"[\d.]+", expression)
    if percent:
        numbers = numbers[:2]
    old = one_of(rng, numbers)
    if numbers.count(old) > 1 or old == y or (old in ("2", "3", "4", "5", "6", "7", "8", "10", "100") and re.search(rf"[*/] {old}$", expression)):
        return None  # the last may be a "half" or "double", which nobody has named as a number
    form, pattern = one_of(rng, CHANGED_NUMBER)
    new = re.sub(rf"(?<![\d.]){re.escape(old)}(?![\d.])", y, expression, count=1)
    return calculation(rng, expand(rng, pattern, a=copied(old), b=b), form, new)


# Units

UNITS = {  # name: (kind, singular, short forms, other spellings in the plural and the singular, size)
    "kilometers": ("length", "kilometer", ["km", "km", "kms"], [("kilometres", "kilometre"), ("k's", "k")][:1], 1000),
    "miles": ("length", "mile", ["mi"], [], 1609.344),
    "meters": ("length", "meter", ["m", "m", "mtrs"][:2], [("metres", "metre")], 1),
    "feet": ("length", "foot", ["ft"], [], 0.3048),
    "inches": ("length", "inch", ["in", "ins"], [], 0.0254),
    "centimeters": ("length", "centimeter", ["cm", "cm", "cms"], [("centimetres", "centimetre")], 0.01),
    "yards": ("length", "yard", ["yd", "yds"], [], 0.9144),
    "millimeters": ("length", "millimeter", ["mm"], [("millimetres", "millimetre")], 0.001),
    "kilograms": ("mass", "kilogram", ["kg", "kg", "kgs"], [("kilos", "kilo"), ("kilos", "kilo"), ("kilogrammes", "kilogramme")], 1),
    "pounds": ("mass", "pound", ["lb", "lbs"], [], 0.45359237),
    "grams": ("mass", "gram", ["g", "g", "gr"], [("grammes", "gramme")], 0.001),
    "ounces": ("mass", "ounce", ["oz"], [], 0.028349523125),
    "milligrams": ("mass", "milligram", ["mg"], [], 0.000001),
    "liters": ("volume", "liter", ["l", "L"], [("litres", "litre")], 1),
    "gallons": ("volume", "gallon", ["gal"], [], 3.785411784),
    "cups": ("volume", "cup", [], [], 0.2365882365),
    "milliliters": ("volume", "milliliter", ["ml", "ml", "mL"], [("millilitres", "millilitre")], 0.001),
    "tablespoons": ("volume", "tablespoon", ["tbsp", "tbsp", "tbs"], [], 0.01478676478125),
    "teaspoons": ("volume", "teaspoon", ["tsp"], [], 0.00492892159375),
    "pints": ("volume", "pint", ["pt"], [], 0.473176473),
    "quarts": ("volume", "quart", ["qt"], [], 0.946352946),
    "seconds": ("time", "second", ["sec", "secs", "s"], [], 1),
    "minutes": ("time", "minute", ["min", "mins"], [], 60),
    "hours": ("time", "hour", ["hr", "hrs", "h"], [], 3600),
    "days": ("time", "day", [], [], 86400),
    "weeks": ("time", "week", [], [], 604800),
}  # fmt: skip
RARE = {"millimeters", "milligrams", "quarts"}
# Pairs that people ask for come more often than the rest.
LIKELY = """kilometers miles|miles kilometers|meters feet|feet meters|inches centimeters|centimeters inches|yards meters|meters yards|miles feet
feet inches
kilograms pounds|pounds kilograms|grams ounces|ounces grams|pounds ounces|kilograms grams|liters gallons|gallons liters|cups milliliters
milliliters cups
tablespoons teaspoons|cups tablespoons|pints liters|liters pints|liters cups|tablespoons milliliters|teaspoons milliliters|hours minutes|minutes hours
minutes seconds|seconds minutes|days hours|weeks days|hours seconds|days minutes|weeks hours|hours days|days weeks|liters milliliters|centimeters feet
kilometers meters|meters centimeters|ounces pounds|ounces kilograms|pounds grams|gallons pints|pints milliliters|yards feet|feet yards
meters miles"""  # fmt: skip
LIKELY = [tuple(p.split()) for line in LIKELY.split("\n") for p in line.split("|")]
BY_KIND = {kind: [n for n, u in UNITS.items() if u[0] == kind] for kind in ("length", "mass", "volume", "time")}
VALUES = {
    "kilometers": [1, 2, 3, 5, 8, 10, 12, 15, 20, 21, 25, 42, 50, 60, 80, 100, 120, 200, 300, 500, 1000],
    "miles": [1, 2, 3, 4, 5, 6, 8, 10, 13, 15, 20, 26, 30, 50, 55, 60, 70, 100, 200, 300, 500],
    "grams": [5, 50, 100, 125, 150, 200, 250, 300, 400, 500, 750, 1000],
    "milliliters": [5, 10, 50, 100, 150, 200, 250, 300, 330, 500, 750, 1000], "seconds": [30, 60, 90, 100, 120, 300, 600, 1000, 3600, 5000, 10000],
    "minutes": [5, 10, 15, 30, 45, 60, 75, 90, 100, 120, 135, 150, 180, 240, 300, 500, 1000, 1440], "cups": [1, 2, 3, 4, 5, 6, 8],
    "centimeters": [2, 5, 10, 15, 20, 30, 40, 50, 60, 75, 100, 120, 150, 160, 170, 175, 180, 185, 190, 200, 250],
    "feet": [1, 2, 3, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100, 500, 1000, 5000], "tablespoons": [1, 2, 3, 4, 5, 6, 8],
    "teaspoons": [1, 2, 3, 4, 5, 6, 9],
}  # fmt: skip
TEMPERATURES = {
    "celsius": [0, 10, 15, 20, 21, 22, 25, 30, 35, 37, 38, 40, 100, 160, 175, 180, 190, 200, 220, 250, -5, -10, -40],
    "fahrenheit": [0, 32, 40, 50, 60, 65, 68, 70, 72, 75, 80, 90, 98.6, 100, 101, 103, 212, 300, 325, 350, 375, 400, 425, 450, 451, -10, -40],
}
HALVES = [("half a $u", 0.5), ("half a $u", 0.5), ("a half $u", 0.5), ("half of a $u", 0.5), ("a quarter of a $u", 0.25), ("a quarter $u", 0.25),
          ("three quarters of a $u", 0.75), ("three-quarters of a $u", 0.75), ("1/2 $u", 0.5), ("1/4 $u", 0.25), ("3/4 $u", 0.75),
          ("1/2 a $u", 0.5)]  # fmt: skip


def article(noun):
    return "an" if noun in ("hour", "inch", "ounce") else "a"


def value_of(rng, unit):
    r = rng.random()
    if r < 0.4:
        return one_of(rng, VALUES.get(unit, [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 24, 30, 36, 48, 50, 60, 72, 80, 100]))
    if r < 0.6:
        return between(rng, 2, 20)
    if r < 0.8:
        return between(rng, 2, 100)
    if r < 0.93:
        return between(rng, 100, 999)
    return amount(rng)


def quantity(rng, unit, style):
    """(text, value) of so much of a unit: "{10} kilometers", "half a mile", "{2.5} {kg}"; style 0 prefers names, 1 short forms."""
    _, singular, short, others, _ = UNITS[unit]
    plural = unit
    if others and chance(rng, 0.35):
        plural, singular = one_of(rng, others)
    r = rng.random()
    if r < 0.1:
        return f"{article(singular)} {singular}", 1
    if r < 0.18:
        text, value = one_of(rng, HALVES)
        text = text.replace("a $u", article(singular) + " $u") if text.startswith(("half", "a quarter of", "three", "1/2 a")) else text
        head = re.match("(three quarters|three-quarters|a half|a quarter|half|1/2|1/4|3/4)", text).group()
        return copied(head) + text[len(head) :].replace("$u", singular), value
    if r < 0.24:
        n = between(rng, 1, 12)
        if n == 1 and chance(rng, 0.6):
            return f"{article(singular)} {singular} and a {{half}}", 1.5
        text = one_of(rng, ["$w and a half", "$w and a half", "$n 1/2", "$n and a half"])
        number = copied(text.replace("$w", in_words(n)).replace("$n", str(n)))
        if n > 1 and chance(rng, 0.25):
            return f"{copied(in_words(n))} {plural} and a {{half}}", n + 0.5
        return f"{number} {plural}", n + 0.5
    if r < 0.38:
        text, digits = decimal(rng)
        if float(digits) == 0:
            return quantity(rng, unit, style)
        value = rounded(float(digits))
        if text.startswith(("{zero", "{0")) and chance(rng, 0.5):
            return quantity(rng, unit, style)
    else:
        value = value_of(rng, unit)
        text, _ = said(rng, value, 0 if style else 0.4)
    if style and short and re.fullmatch(r"\{[\d.,]+\}", text):
        return text + one_of(rng, ["", " ", " "]) + copied(one_of(rng, short)), value
    if unit == "feet" and chance(rng, 0.15):
        plural = "foot"
    return f"{text} {singular if value == 1 else plural}", value


def degrees(rng, unit):
    """(text, value) of a temperature."""
    low, high = (-30, 120) if unit == "celsius" else (-20, 250)
    r = rng.random()
    if r < 0.4:
        value = one_of(rng, TEMPERATURES[unit])
    elif r < 0.8:
        value = between(rng, low, high)
    elif r < 0.92:
        value = rounded(between(rng, low * 10, high * 10) / 10)
    else:
        value = between(rng, 100, 999)
    if isinstance(value, int):
        text = copied(spoken(rng, value)) if chance(rng, 0.3) else copied(str(value))
        if value < 0 and chance(rng, 0.3):
            text = copied("minus " + str(-value))
    else:
        text = copied(str(value))
    letter = unit[0].upper()
    digits = re.fullmatch(r"\{-?[\d.]+\}", text)
    name = one_of(rng, [" " + unit, " " + unit, " degrees " + unit, " degrees " + unit, " " + unit.capitalize(), " degrees " + unit.capitalize()])
    if digits and chance(rng, 0.4):
        name = one_of(rng, [f"°{letter}", f" °{letter}", f" {letter}", letter, f" degrees {letter}"])
        name = name.replace(letter, copied(letter)) if chance(rng, 0.75) else name.replace(letter, copied(letter.lower()))
    elif unit == "celsius" and chance(rng, 0.06):
        name = one_of(rng, [" degrees centigrade", " centigrade"])
    return text + name, value


def unit_text(rng, unit, style):
    """A unit that is asked for: "kilometers", "kilometres", "{km}"."""
    if unit in ("celsius", "fahrenheit"):
        letter = unit[0].upper()
        names = [unit, unit, unit.capitalize(), "degrees " + unit, "degrees " + unit.capitalize()]
        if style:
            names += ["°" + copied(letter), copied(letter)] + ["centigrade"] * (unit == "celsius")
        return one_of(rng, names)
    _, _, short, others, _ = UNITS[unit]
    if style and short:
        return copied(one_of(rng, short))
    return one_of(rng, others)[0] if others and chance(rng, 0.35) else unit


def converted(value, source, target):
    if source == "celsius":
        return rounded(value * 9 / 5 + 32)
    if source == "fahrenheit":
        return rounded((value - 32) * 5 / 9)
    return rounded(value * UNITS[source][4] / UNITS[target][4])


def named(value, unit):
    if unit in ("celsius", "fahrenheit"):
        return f"{value} degrees {unit.capitalize()}"
    return f"{value} {UNITS[unit][1] if value == 1 else unit}"


CONVERT_REPLIES = [
    "$q [is|are] $r.", "$q [is|are] $r.", "$q [is|are] $r.", "That's $r.", "That's $r.", "It's $r.", "$r.", "That makes $r.", "$q makes $r.",
    "$q comes to $r.", "That would be $r.", "$q is the same as $r.", "$q equals $r.",
]  # fmt: skip


def conversion(rng, text, form, value, source, target):
    call = ("convert", {"value": value, "from": source, "to": target})
    if chance(rng, 0.025):
        error = one_of(rng, ERRORS + ["unknown unit", "conversion failed"])
        return Request(text, form, [call], [{"error": error}], expand(rng, one_of(rng, SORRY), e=error))
    result = converted(value, source, target)
    pattern = one_of(rng, CONVERT_REPLIES)
    single = value == 1 or source in ("celsius", "fahrenheit")
    reply = expand(rng, pattern.replace("[is|are]", "is" if single else "are"), q=named(value, source), r=named(result, target))
    return Request(text, form, [call], [{"result": result}], reply)


# $q the quantity, $u the unit that is asked for, $n the same in full letters, $i the source's unit in full letters
CONVERSIONS = framed(
    question=[
        "what's $q in $u", "what is $q in $u", "how much is $q in $u", "how many $n [is|are] $q", "how many $n [are|are there] in $q",
        "how many $n in $q", "how many $n does $q make", "how many $n make [up|] $q", "how many $n do I get from $q", "how many $n go into $q",
        "how many $n [equal|are equal to] $q", "$q is how many $n", "$q is [how much|what] in $u", "$q in $u is [what|how much]",
        "what would $q be in $u", "do you know [what|how much] $q is in $u", "any idea [what|how much] $q is in $u",
        "what does $q [come to|make|equal] in $u", "what do you get if you convert $q [to|into] $u",
        "[what is|what's] $q [expressed|measured] in $u", "what's $q converted to $u", "would you mind converting $q [to|into] $u",
        "$q, what's that in $u", "$q, how much is that in $u", "$q, how many $n is that",
        ("[the recipe|it|the label|the box|the manual|the book|the map|the sign] says $q, [what's that in $u|how many $n is that|how much "
         "is that in $u]"),
        "[the recipe|the instructions|the plan] [calls for|asks for|needs|wants] $q, [what's that in $u|how many $n is that]",
        "I [have|need|want|only have|found|got] $q, [what's that in $u|how many $n is that|how much is that in $u]",
        "in $u, [what's|what is|how much is] $q", "if I have $q, how many $n is that", "what's the equivalent of $q in $u",
        "how would I say $q in $u", "how do I get from $q to $u", "what is the equivalent of $q in $u", "so $q would be how many $n",
        "[wait|hang on|okay|hmm|um], $q is how many $n", "how many $n would $q be", "how many $n does $q [come to|give me|equal|come out as]",
        "what number of $n is $q", "exactly how many $n [are in|is] $q", "roughly how many $n [are in|is] $q",
        "[I forgot], how many $n [are|are there] in $q", "and how many $n [is|are in] $q",
        "for my [British|American|German|French|Canadian|Indian] [friend|recipe|colleague], what's $q in $u",
        "how many $n [will|would] I need for $q", "how many $n would that be, $q", "[is there a way to|how do you] convert $q [to|into] $u",
        "whats $q in $u", "how much would $q be in $u", "what's $q if you measure it in $u", "$q to $u is what", "how many $n fit [in|into] $q",
    ],
    command=[
        "convert $q [to|into|to|in] $u", "convert $q [to|into] $u", "change $q [to|into] $u", "turn $q into $u", "translate $q [to|into] $u",
        "express $q in $u", "tell me [what|how much] $q is in $u", "tell me how many $n [$q is|are in $q|there are in $q|make $q]",
        "give me $q in $u", "show me $q in $u", "work out $q in $u", "calculate $q in $u", "calculate how many $n $q is",
        "figure out [$q in $u|how many $n are in $q]", "do the conversion [of|from] $q [to|into] $u", "switch $q to $u",
        "find out how many $n are in $q", "let me know [what|how much] $q is in $u", "say $q in $u", "write $q in $u", "put $q into $u",
        "compute $q in $u", "give me the $n [for|in] $q", "help me convert $q [to|into] $u", "tell me $q in $u",
        "run a conversion from $q to $u", "look up [what|how much] $q is in $u", "check how many $n $q [is|comes to|makes]",
        "recalculate $q in $u", "quickly convert $q [to|into] $u", "get me $q in $u", "state $q in $u",
    ],
    statement=[
        "$q in $u", "$q to $u", "$q into $u", "$q in $u", "$q to $u", "$u for $q", "$q as $u", "I need $q in $u",
        "I want to know [what|how much] $q is in $u", "I'd like $q in $u", "I'd like to know how many $n are in $q",
        "I need to [convert|change] $q [to|into] $u", "I wonder how many $n [$q is|are in $q]", "I was wondering [what|how much] $q is in $u",
        "I have to [turn|convert] $q into $u", "I can't convert $q [to|into] $u in my head", "I need the $n for $q",
        "[conversion|converter|unit conversion]: $q to $u", "I don't know [what|how much] $q is in $u", "I've got $q and I need it in $u",
        "let's convert $q [to|into] $u", "I [need|want] $q expressed in $u",
        "[it says|the recipe says|my scale says|the box says] $q but I need $u", "I have $q but I need it in $u", "number of $n in $q",
        "the number of $n in $q", "I want $q converted to $u", "I never know how many $n are in $q", "$q = how many $n", "$q, but in $u",
        "$q, in $u that is", "I think in $n, so [tell me what|I need to know what] $q is in $u",
    ],
)  # fmt: skip
OWN = {
    "length": framed(
        question=[
            "how [far|long] is $q in $u", "$q, how far is that in $u",
            "I [ran|walked|drove|cycled|swam|hiked] $q [today|yesterday|], how many $n is that",
            "it's $q to [the station|the office|town|the beach|school], what's that in $u", "I'm $q tall, what's that in $u",
            "the [table|wall|room|garden|rope|shelf|fabric|board] is $q long, [what's that in $u|how many $n is that]",
            "the screen is $q wide, how many $n is that", "if something is $q long, how many $n is that", "how [tall|high|wide] is $q in $u",
        ],
        command=[
            "tell me how far $q is in $u", "measure $q in $u",
        ],
        statement=[
            "my [desk|sofa|bed|window|fridge|door] is $q wide and I need that in $u",
        ],
    ),
    "mass": framed(
        question=[
            "how heavy is $q in $u", "I weigh $q, what's that in $u",
            "how many $n is $q of [butter|flour|sugar|meat|cheese|rice|pasta|chocolate|beef|potatoes]",
            "what's $q of [butter|flour|sugar|meat|cheese|rice|pasta|chocolate|oats|nuts] in $u",
            "my [dog|cat|baby|suitcase|bag|parcel|bike] weighs $q, how many $n is that",
            "the [bag|parcel|turkey|fish|chicken|box|stone] [is|weighs] $q, what's that in $u", "I lost $q, how much is that in $u",
        ],
        command=[
            "convert $q of [butter|flour|sugar|cheese|rice|beef|chocolate|almonds] [to|into] $u", "tell me how heavy $q is in $u",
        ],
        statement=[
            "$q of [butter|flour|sugar|rice|cheese|pasta|nuts] in $u", "I need $q of [butter|flour|sugar] but my scale shows $n",
        ],
    ),
    "volume": framed(
        question=[
            "how many $n is $q of [milk|water|oil|juice|cream|wine|stock|broth]",
            "what's $q of [milk|water|oil|juice|cream|wine|stock|beer] in $u", "how many $n of [milk|water|oil|cream] are in $q",
            "the tank holds $q, how many $n is that", "the [bottle|jug|bucket|pot|can] holds $q, what's that in $u",
            "I drank $q [today|yesterday|], how many $n is that", "how big is $q in $u",
        ],
        command=[
            "convert $q of [milk|water|oil|cream|broth|juice] [to|into] $u", "tell me how many $n of [milk|water|cream] are in $q",
        ],
        statement=[
            "$q of [milk|water|oil|cream|stock] in $u",
        ],
    ),
    "time": framed(
        question=[
            "how long is $q in $u", "the [movie|film|flight|show|game|meeting|video] [is|lasts|takes] $q, how many $n is that",
            "how many $n do I have in $q", "it takes $q, what's that in $u", "how many $n are there in $q", "how many $n does $q have",
            "how many $n pass in $q", "I slept for $q, how many $n is that",
            "$q until [the trip|the party|my birthday|the exam], how many $n is that",
        ],
        command=[
            "tell me how long $q is in $u", "count the $n in $q",
        ],
    ),
    "temperature": framed(
        question=[
            "how [hot|warm] is $q in $u", "the oven [should be|has to be|must be|is] at $q, what's that in $u", "what temperature is $q in $u",
            "[the recipe|it|the package] says $q, what's that in $u", "the water is $q, how much is that in $u",
            "I have a fever of $q, what's that in $u", "it's $q in [Texas|New York|Boston|Florida|Berlin|Madrid|Delhi|Sydney], what's that in $u",
            "bake at $q, what's that in $u", "how cold is $q in $u", "$q outside, what's that in $u",
        ],
        command=[
            "tell me how warm $q is in $u",
        ],
        statement=[
            "the recipe says $q but my oven is in $u", "$q in $u", "my thermometer shows $q and I need that in $u",
        ],
    ),
}  # fmt: skip
PER_UNIT = [
    "how many $n per $s", "how many $n to [the|a] $s", "how many $n [are|are there|do I have] per $s", "how many $n make $one",
    "how many $n go into $one", "how many $n does [it take to make|it take for] $one", "how many $n [make|give] one $s", "$one has how many $n",
    "how many $n does $one have", "what's $one in $n", "how many $n [are|are there] in [one|a single] $s", "how much is one $s in $n",
    "$n per $s", "$n in $one", "how many $n in one $s",
]  # fmt: skip
SIMPLE = [(form, p) for form, p in CONVERSIONS if "$n" not in p and not re.search("recipe|calls for|scale|measure|I \\[have", p)]


def convert(rng):
    r = rng.random()
    if r < 0.17:
        source, target = one_of(rng, [("celsius", "fahrenheit"), ("fahrenheit", "celsius")])
        return temperature(rng, source, target)
    if r < 0.7:
        source, target = one_of(rng, LIKELY)
    else:
        units = BY_KIND[one_of(rng, ["length", "mass", "volume", "time"])]
        source, target = one_of(rng, units), one_of(rng, units)
        if source == target or (RARE & {source, target} and chance(rng, 0.6)):
            return convert(rng)
    if chance(rng, 0.03) and converted(1, source, target) > 1:
        full, single = unit_text(rng, target, 0), UNITS[source][1]
        text = expand(rng, one_of(rng, PER_UNIT), n=full, s=single, one=f"{article(single)} {single}")
        return conversion(rng, text, "question", 1, source, target)
    style = one_of(rng, [0, 0, 0, 1])
    q, value = quantity(rng, source, style)
    result = converted(value, source, target)
    if not 0.002 < abs(result) < 1e9:
        return convert(rng)
    form, pattern = one_of(rng, OWN[UNITS[source][0]]) if chance(rng, 0.22) else one_of(rng, CONVERSIONS)
    if re.search("go into|make|fit", pattern) and UNITS[target][4] > UNITS[source][4]:
        return convert(rng)
    if value < 1 and re.search(r"weigh|tall|lost|slept|until|drank|screen|it's \$q|long, |wide|hiked", pattern):
        return convert(rng)
    if source in ("tablespoons", "teaspoons") and "holds" in pattern:
        return convert(rng)
    if UNITS[source][0] == "time" and re.search("label|box|map|sign|scale|found|British", pattern):
        return convert(rng)
    full = unit_text(rng, target, 1 if chance(rng, 0.08) else 0)
    text = expand(rng, pattern, q=q, u=unit_text(rng, target, style if chance(rng, 0.8) else 1 - style), n=full)
    return conversion(rng, text, form, value, source, target)


def temperature(rng, source, target):
    q, value = degrees(rng, source)
    form, pattern = one_of(rng, OWN["temperature"]) if chance(rng, 0.35) else one_of(rng, SIMPLE)
    if re.search("fever|water is|oven|recipe|bake", pattern) and value < 30 or "until" in pattern:
        return temperature(rng, source, target)
    if "$u" in pattern and chance(rng, 0.05):  # the unit goes without saying
        q = copied(str(value)) + " degrees"
    style = 1 if chance(rng, 0.25) else 0
    text = expand(rng, pattern, q=q, u=unit_text(rng, target, style))
    if chance(rng, 0.1) and "$u" in pattern:
        text = expand(rng, one_of(rng, ["how many degrees $u is $q", "how many degrees $u are $q", "$q is how many degrees $u"]), q=q, u=target)
        form = "question"
    return conversion(rng, text, form, value, source, target)


OTHER_TARGET = framed(
    question=[
        "and in $u", "and in $u", "what about [in|] $u", "how about [in|] $u", "and what's that in $u", "and how many $u is that",
        "and how many $u", "what is it in $u", "how many $u would that be",
    ],
    command=[
        "tell me in $u [|too|instead]", "make that $u", "give me that in $u", "show it in $u instead",
        "convert [it|that|the same] to $u [|as well|too|instead]",
    ],
    statement=[
        "now in $u", "no, in $u", "I meant [in|to|into] $u", "in $u [instead|too|as well]", "and the same in $u", "I need it in $u [instead|too]",
        "sorry, [in|to] $u",
    ],
)  # fmt: skip
OTHER_VALUE = framed(
    question=[
        "and $v", "and $v", "what about $v", "how about $v", "and if it's $v", "and for $v", "what if it's $v", "and what would $v be",
        "what's $v then", "and what about $v",
    ],
    command=[
        "make it $v", "do [the same for|that for|the same with] $v", "try $v [|instead]", "convert $v too",
    ],
    statement=[
        "now $v", "$v instead", "no, $v", "I meant $v", "sorry, $v", "the same for $v", "now for $v", "same for $v", "actually $v", "next, $v",
    ],
)  # fmt: skip
OTHER_WAY = [
    "and the other way [round|around]", "and the other way [round|around]", "what about the other way [round|around]", "and vice versa",
    "and in reverse", "and backwards",
]  # fmt: skip


def convert_again(rng, arguments):
    """The last conversion with another value, into another unit, or the other way round."""
    value, source, target = arguments["value"], arguments["from"], arguments["to"]
    known = source in UNITS and target in UNITS
    if not known and source not in ("celsius", "fahrenheit"):
        return None
    r = rng.random()
    if r < 0.4 and known:
        other = one_of(rng, BY_KIND[UNITS[source][0]])
        result = converted(value, source, other)
        if other in (source, target) or not 0.002 < abs(result) < 1e9:
            return None
        form, pattern = one_of(rng, OTHER_TARGET)
        return conversion(rng, expand(rng, pattern, u=unit_text(rng, other, 1 if chance(rng, 0.15) else 0)), form, value, source, other)
    if r < 0.9:
        if not known:
            text, new = degrees(rng, source)
        elif chance(rng, 0.5):
            new = value_of(rng, source)
            text = said(rng, new)[0]
        else:
            text, new = quantity(rng, source, 1 if chance(rng, 0.2) else 0)
        if new == value or known and not 0.002 < abs(converted(new, source, target)) < 1e9:
            return None
        form, pattern = one_of(rng, OTHER_VALUE)
        return conversion(rng, expand(rng, pattern, v=text), form, new, source, target)
    if known and not 0.002 < abs(converted(value, target, source)) < 1e9:
        return None
    return conversion(rng, expand(rng, one_of(rng, OTHER_WAY)), "question", value, target, source)


REQUESTS = {"calculate": (6, calculate), "convert": (5, convert)}
FOLLOWS = {"calculate": calculate_again, "convert": convert_again}
