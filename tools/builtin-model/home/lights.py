"""Wishes for lights: on and off, brightness, colour, for one room, one lamp, several rooms or all of them, and what follows."""

import re
from functools import lru_cache

from grammar import Request, chance, copied, expand, number, one_of
from rooms import ADVERBS, new_word, place, room_phrase, room_place, the, where

LAMPS = [
    "desk", "desk", "bedside", "bedside", "floor", "table", "reading", "ceiling", "wall", "mirror", "vanity", "pendant", "counter", "sink", "stove",
    "hood", "cabinet", "shelf", "bookshelf", "piano", "sofa", "couch", "corner", "aquarium", "fish tank", "terrarium", "picture", "sideboard",
    "nightstand", "bed", "headboard", "dining table", "coffee table", "window", "workbench", "easel", "step", "path", "fairy", "string",
    "Christmas tree", "accent", "lava", "salt", "globe", "moon", "mushroom", "paper", "crystal", "tripod", "banker's", "closet", "wardrobe", "crib",
    "armchair", "standing",
]  # fmt: skip
SPOTS = [
    "front door", "back door", "side door", "gate", "garden gate", "kitchen island", "bay window", "front desk", "hot tub", "pond", "fountain",
    "mailbox", "letterbox", "flag pole", "house number", "fire pit", "statue", "Christmas tree", "stage door",
]  # fmt: skip
COLORS = [
    "red", "blue", "green", "yellow", "orange", "purple", "pink", "white", "violet", "turquoise", "warm white", "cool white", "cold white", "amber",
    "gold", "cyan", "magenta", "teal", "lavender", "indigo", "lilac", "peach", "coral", "salmon", "mint", "lime", "crimson", "scarlet", "burgundy",
    "ivory", "cream", "rose", "fuchsia", "mauve", "plum", "aqua", "emerald", "ruby", "sapphire", "apricot", "champagne", "copper", "cherry",
    "lemon", "olive", "maroon", "navy", "azure", "beige", "brown", "tangerine", "raspberry", "cerulean", "aquamarine", "chartreuse", "vermilion",
    "soft white", "neutral white", "natural white", "bright white", "pure white", "daylight white", "sky blue", "royal blue", "baby blue",
    "navy blue", "ice blue", "midnight blue", "electric blue", "lime green", "forest green", "mint green", "sea green", "olive green", "neon green",
    "hot pink", "baby pink", "neon pink", "blood red", "cherry red", "brick red", "fire red", "dark red", "deep red", "dark blue", "deep blue",
    "light blue", "light green", "pale yellow", "pale pink", "golden yellow", "burnt orange", "bright orange", "deep purple", "royal purple",
    "warm yellow",
]  # fmt: skip
BASES = ["red", "blue", "green", "yellow", "orange", "purple", "pink", "white", "violet", "gold", "grey", "turquoise", "brown", "silver"]
SHADES = [
    "light", "dark", "deep", "pale", "bright", "soft", "warm", "cool", "pastel", "neon", "dusty", "smoky", "milky", "muted", "vivid", "rich",
    "faded", "ocean", "sunset", "strawberry", "banana", "lavender", "lemon", "moss", "steel", "rose", "candy", "honey", "pumpkin", "cobalt",
    "winter", "spring", "autumn", "jungle", "lagoon", "ruby", "tomato", "apple", "peacock", "canary", "flamingo", "copper", "bottle", "cherry",
    "storm",
]  # fmt: skip
ERRORS = [
    "no such room", "light not found", "the light does not answer", "the bulb is broken", "not connected", "device offline", "no response",
    "bridge not reachable", "timeout", "no light there", "no power", "unknown room", "the hub is busy",
]  # fmt: skip
REFUSED = [
    "Sorry, that didn't work: $e.", "I couldn't do that: $e.", "That failed: $e.", "Sorry: $e.", "It won't work right now, $e.", "No luck, $e.",
]  # fmt: skip

NOUNS = [("light", False)] * 5 + [("lights", True)] * 6 + [("lamp", False), ("lamps", True), ("lighting", False)]
ALL_LIGHTS = [
    ("all the lights", True), ("all the lights", True), ("all lights", True), ("all of the lights", True), ("every light", False),
    ("every light in the house", False), ("all the lights in the house", True), ("the lights everywhere", True), ("every single light", False),
    ("the lights in the whole house", True), ("all the lamps", True), ("every lamp", False), ("the lights in all the rooms", True),
    ("the lights in every room", True), ("all our lights", True), ("the lights all over the house", True), ("all of my lights", True),
    ("the light in the whole house", False), ("all the lights everywhere", True), ("the lights throughout the house", True), ("all lamps", True),
]  # fmt: skip
ALL_CURT = [
    "all lights", "all the lights", "every light", "lights everywhere", "all lamps", "whole house lights", "lights whole house",
    "all of the lights",
]  # fmt: skip
ALL_PLACES = [
    "everywhere", "everywhere", "in the whole house", "all over the house", "in every room", "in all rooms", "in all the rooms",
    "throughout the house", "in the entire house", "all through the house", "in the whole apartment", "in the whole flat", "in the whole place",
]  # fmt: skip
ALL_ROOMS = ["the whole house", "the entire house", "every room", "the whole place", "the whole flat", "the whole apartment"]


@lru_cache(maxsize=None)
def slots(pattern):
    return frozenset(re.findall(r"\$([a-z_]+)", pattern))


def target(rng, pattern):
    """What is to be lit, as fits the slots of the pattern: (values, room or None).

    $l the light with its article ($o: never all of them), $k the same curtly, $is $it $needs agreeing with it, $r a room, $at a place,
    $w a place or nothing.
    """
    needed = slots(pattern)
    x = rng.random()
    if not needed & {"l", "o", "k", "r", "n", "at", "w"}:
        kind = "none"
    elif "o" in needed:
        kind = "room" if x < 0.75 else "lamp" if x < 0.87 else "none"
    elif "r" in needed or "n" in needed:
        kind = "all" if x < 0.06 and "n" not in needed else "room"
    elif "at" in needed or "w" in needed:
        kind = "room" if x < 0.78 else "none" if x < 0.9 else "all"
    else:
        kind = "room" if x < 0.66 else "lamp" if x < 0.76 else "none" if x < 0.88 else "all"
    values = {"the": one_of(rng, ["the light", "the lights", "the lights"])}
    if kind == "none":
        l, plural = one_of(rng, [("the light", False), ("the lights", True), ("the lights", True), ("the lamp", False), ("the lights in here", True),
                                 ("the light in here", False), ("the lights here", True), ("the lamps", True)])  # fmt: skip
        values.update(l=l, k=one_of(rng, ["light", "lights", "lights", "the lights", "the light", "lamp"]),
            at=one_of(rng, ["in here", "in here", "here"]))
        values["w"] = "" if chance(rng, 0.6) else values["at"]
        name = None
    elif kind == "all":
        l, plural = one_of(rng, ALL_LIGHTS)
        at = one_of(rng, ALL_PLACES)
        values.update(l=l, k=one_of(rng, ALL_CURT), at=at, w=at, r=one_of(rng, ALL_ROOMS))
        name = "all"
    elif kind == "lamp":
        name = new_word(rng, chance(rng, 0.2)) if chance(rng, 0.1) else one_of(rng, LAMPS)
        noun, plural = one_of(rng, [("lamp", False), ("lamp", False), ("lamp", False), ("light", False), ("lights", True), ("lamps", True)])
        values.update(l=one_of(rng, ["the ", "the ", "the ", "my "]) + copied(name) + " " + noun, k=copied(name) + " " + noun)
    else:
        noun, plural = one_of(rng, NOUNS)
        if chance(rng, 0.04) and "r" not in needed and "n" not in needed:
            name = one_of(rng, ADVERBS)
            at = copied(name)
            l = one_of(rng, ["the ", "the ", "all the " if plural and "o" not in needed else "the "]) + noun + " " + at
            values.update(l=l, k=one_of(rng, [noun + " " + at, at + " " + noun]), at=at, w=at)
        else:
            if chance(rng, 0.03) and "r" not in needed and "n" not in needed:
                name = one_of(rng, SPOTS)
                r, at = "the " + copied(name), "at the " + copied(name)
            else:
                r, name = room_phrase(rng)
                at = place(r, name)
            x = rng.random()
            if x < 0.55:
                l = r + " " + noun
            elif x < 0.88 or "o" in needed:
                l = "the " + noun + " " + at
            else:
                l = one_of(rng, ["all the lights " + at, "every light " + at, "all " + r + " lights", "all of the lights " + at, "both lights " + at,
                                 r + "'s lights", "all of " + r + " lights"])  # fmt: skip
                plural = not l.startswith("every")
            bare = copied(name)
            k = one_of(rng, [bare + " " + noun] * 5 + [noun + " " + bare, noun + " " + at, noun + " in " + bare, bare + ", " + noun])
            values.update(l=l, k=k, at=at, w=at, r=r, n=bare)
    values["o"] = values["l"]
    values.update({"is": "are", "it": "them", "needs": "need"} if plural else {"is": "is", "it": "it", "needs": "needs"})
    return values, name


ON_VERBS = ["turn on"] * 4 + ["switch on"] * 4 + ["put on", "flip on", "flick on", "power on", "activate"]
ON_ING = ["turning on", "turning on", "switching on", "switching on", "putting on", "flicking on"]
OFF_VERBS = ["turn off"] * 4 + ["switch off"] * 4 + ["shut off", "turn out", "put out", "kill", "cut", "power off", "shut down", "flick off",
    "flip off"]
OFF_ING = ["turning off", "turning off", "switching off", "switching off", "shutting off", "turning out", "killing"]

# $v "turn on" or "turn off", $s "on" or "off"
SWITCH_COMMANDS = [
    "$v $l", "$v $l", "$v $l", "$v $l [now|for me|right now|again|right away|at once|immediately|quickly|for a while|for a moment]",
    "[turn|switch] $l $s", "[turn|switch] $l $s",
    "[turn|switch|flip|flick] $l $s [now|for me|right now|again|right away|at once|immediately|quickly]", "[turn|switch|put] $the $s $at",
    "[turn|switch] $the $s $w [for me|now|again]", "[turn|switch] $s $the $w", "$v $the $w [now|for me|again]", "make sure [|that] $l $is $s",
    "make sure $l $is [switched|turned] $s", "see to it that $l $is $s", "see that $l $is $s", "go ahead and $v $l", "get $l [turned|switched] $s",
    "have $l [turned|switched] $s", "do me a favor and $v $l", "do me a favour and [turn|switch] $l $s", "set $l to $s", "put $l to $s",
    "just $v $l", "just [turn|switch] $l $s", "quickly $v $l", "be a dear and $v $l", "be so kind and $v $l", "help me and $v $l",
    "check that $l $is $s", "let me have $l $s", "let us have $l $s", "get $the $s $at", "have $the $s $at", "get $l $s",
    "go and [turn|switch] $l $s", "try to [turn|switch] $l $s", "try and $v $l", "remember to $v $l", "don't forget to $v $l", "change $l to $s",
]  # fmt: skip
ON_COMMANDS = [
    "light up $r", "illuminate $r", "[give me|give us|get me|make|get] [some|a bit of|a little] light $at", "bring [some|a bit of] light into $r",
    "put [some|the] [light|lights] on $at", "put $l on", "leave $l on", "keep $l on", "light $r [for me|]", "let there be light $at",
    "let there be light", "let me have [some|a little] light $at", "shine [some|a] light $at", "get $the going $at", "power up $l",
    "turn some lights on $at", "switch some lights on $at", "turn a light on $at", "switch on a light $at", "put a light on $at", "light $r up",
    "wake up $l", "start $l", "let $l shine", "let $l burn", "throw some light into $r", "throw on $l", "pop $l on", "stick $the on $at",
    "let us have some light $at", "show me some light $at", "make it light $at", "bring $l back on", "turn $l back on", "switch $l back on",
]  # fmt: skip
OFF_COMMANDS = [
    "kill $l", "kill $the $w", "cut $the $w", "cut $l", "shut $l off", "shut $the off $at", "put out $l", "put $l out", "turn $l out",
    "turn out $the $at", "douse $l", "extinguish $l", "get rid of the light $at", "power down $l", "shut down $l", "deactivate $l", "disable $l",
    "switch $l back off", "turn $l back off", "don't leave $o on", "take $the off $at", "let $l go out", "stop wasting power and turn $l off",
    "let $l go off", "lose $the $at", "pop $l off", "shut $the $w off", "flick $l off", "let $l rest",
    "save some electricity and [turn|switch] $l off", "save energy and $v $l", "send $l to sleep", "do away with the light $at",
]  # fmt: skip
SWITCH_STATEMENTS = [
    "$k $s", "$k $s", "$k $s", "$k, $s", "$k: $s", "[light|lights] $s $w", "lights $s $w", "[light|lights] $s, $n", "$s with $the $w",
    "$n: [light|lights] $s", "$n, lights $s", "$n [light|lights] $s [now|]", "$at [light|lights] $s", "$at, $v $the",
    "$k $s [now|again|for me|right now]", "[I'd like|I would like] $l $s", "I [want|need] $l $s",
    "I [want|need] $l $s [now|right now|again|at once|for a while]", "we need $l $s", "we want $l $s", "I'd [love|like] to have $l $s",
    "I'd love to have $l $s", "$l should be $s", "$l should go $s", "$l [must|has to|have to] be $s", "$l $needs to be $s", "$l $needs to go $s",
    "let's have $l $s", "let's turn $l $s", "let's $v $l", "time to $v $l", "it's time to $v $l", "time for $l to go $s", "you can $v $l now",
    "you may $v $l", "you should $v $l", "I was hoping you could $v $l", "I'd appreciate it if you turned $l $s",
    "it would be [nice|good|great|lovely] if you could $v $l", "it'd be [nice|great] to have $l $s",
    "my [wife|husband|mother|sister|roommate] wants $l $s", "I forgot to $v $l", "I think we should $v $l", "somebody needs to $v $l",
    "someone should $v $l", "I want you to $v $l", "I need you to $v $l", "I'd rather have $l $s", "I'd prefer $l $s", "I prefer $l $s",
    "I wish $l were $s", "you forgot to $v $l", "my request: $l $s", "$l $s would be [nice|great]", "I want to $v $l", "I'd like to $v $l",
    "we'd like $l $s", "I'd like $the $s $at", "I want $the $s $at", "I need $the $s $w", "let's get $l $s", "$s, $l", "$l: $s", "$l, $s",
    "switch: $l $s", "okay, $l $s", "so, $l $s", "right, $l $s", "now $l $s", "$l $s", "$l $s", "it's about time $l went $s", "if you could $v $l",
    "maybe you could $v $l", "perhaps $v $l", "I'd be happy if you $v $l", "it's best to $v $l", "[everyone|everybody] wants $l $s",
    "I ask you to $v $l", "your job is to $v $l", "next, $v $l", "now $v $l", "first $v $l", "quick, $v $l",
]  # fmt: skip
ON_STATEMENTS = [
    "it's [too|so|very|pretty|really|awfully|quite|far too|terribly|kind of|a bit too] dark $at", "it is [too|so|very|pretty] dark $at",
    "it's [pitch|] dark $at", "it's getting [dark|too dark|pretty dark] $at", "it's [pitch black|totally dark|completely dark] $at", "too dark $at",
    "I can't see [anything|a thing|what I'm doing|where I'm going|my own feet|much|my hand in front of my face] $at", "I can barely see $at",
    "I can hardly see [anything|a thing] $at", "there's no light $at", "there is not enough light $at to see anything",
    "$r is [too|so|far too] dark", "$r is [pitch black|completely dark|dark]", "we're [sitting|standing] in the dark $at",
    "I'm [sitting|standing|working] in the dark $at", "I need [some|a little|a bit of] light $at", "we need [some|a bit of] light $at",
    "I could use [some|a little] light $at", "some light $at", "[a bit of|a little|some] light $at would be [nice|great|good|helpful]",
    "I keep bumping into things $at", "I'd like [some|a little] light $at", "I want [some|a bit of] light $at",
    "the [guests|kids|children|workers] can't see anything $at", "it's so gloomy $at", "I need light $at", "let's have [some|a bit of] light $at",
    "let's get some light $at", "[light|lights] $at", "[lights|light] $n", "[light|lights] for $r", "lights on",
    "somebody will [trip|fall] $at, it's so dark", "I wish there were some light $at", "it's hard to see [anything|] $at",
    "you can't see a thing $at", "I need to see [something|what I'm doing] $at", "there should be light $at", "time for some light $at",
    "I need $l", "my eyes can't see a thing $at", "I'm looking for my [keys|glasses|phone] and it's dark $at", "let's light up $r",
    "how dark it is $at", "$r [needs|could use] some light", "we could do with some light $at", "I could do with a bit of light $at",
    "I'm tripping over everything $at, it's so dark", "it's dark as night $at",
]  # fmt: skip
OFF_STATEMENTS = [
    "$l can go off", "$l can go off now", "$l can go out", "$l may go out now", "we don't need [any|the] light $at [any more|anymore|now|]",
    "lights out", "I don't need $o [any more|anymore|now]", "we don't need $o [any more|anymore|right now]",
    "no need for $o [any more|anymore|now]", "lights out $w", "$l $is still on, [turn|switch] $it off", "I left $l on, [turn|switch] $it off",
    "I think I left $l on", "somebody left $l on", "I forgot $o", "$l $is wasting electricity", "nobody needs $o [now|any more|anymore]",
    "we're [done|finished] $at, lights off", "no one's $at, so lights off", "nobody is $at any more, so the light can go off",
    "I don't want $o on [any more|anymore|]", "there's no reason for $o to be on", "$k out", "$l $is keeping me awake", "no more light $at",
    "I'm done $at, the light can go off", "that's enough light $at, turn it off", "no light $at", "$o shouldn't be on [now|any more|at this hour]",
    "I don't like $o on", "someone forgot to turn off $l", "nobody is $at, turn off the light", "you can kill $l",
    "I left $l on by [mistake|accident]", "the [kids|children|guests] left $l on again", "$l $is on for no reason", "no lights $at",
    "[light|lights] out $at", "$n [light|lights] out", "let's save some power and turn off $l", "let's kill $l", "out with $l",
    "away with the light $at", "we're not using $o", "I can't sleep with $o on", "$l can rest now", "it's a waste to have $o on",
    "there's nobody $at and the light is on", "I don't need any light $at", "I'd like no light $at", "I'm finished $at, lights out",
]  # fmt: skip
SWITCH_QUESTIONS = [
    "would you mind $ving $l", "would you mind [turning|switching] $l $s", "mind [turning|switching] $l $s", "do you mind $ving $l",
    "mind $ving $l", "can [I|we] have $l $s", "could [I|we] [have|get] $l $s", "may [I|we] have $l $s", "may I ask you to $v $l", "shall we $v $l",
    "can we get $l $s", "how about [turning|switching] $l $s", "how about $ving $l", "what about $ving $l", "why don't you $v $l",
    "why don't we $v $l", "why not $v $l", "is it possible to $v $l", "would it be possible to $v $l", "any chance you could $v $l",
    "any chance of getting $l $s", "can $l be [turned|switched] $s", "do you think you could $v $l", "could I trouble you to $v $l",
    "won't you $v $l", "would you be so kind as to $v $l", "can you get $l $s", "can I get $the $s $at", "could we have $the $s $at",
    "would you be able to $v $l", "are you able to $v $l", "may I bother you to $v $l", "might you $v $l", "could someone $v $l",
    "can somebody $v $l", "will you [turn|switch] $l $s", "can I ask you to $v $l", "could $l go $s", "could you make sure $l $is $s",
    "would you see to it that $l $is $s", "can you [turn|switch] $the $s $at", "could you [turn|switch] $l $s for me",
    "would you like to $v $l for me", "you couldn't $v $l, could you", "you can $v $l, right", "$v $l, will you", "[turn|switch] $l $s, would you",
    "$k $s, okay", "$l $s, can you do that", "did you forget to $v $l", "isn't it time to $v $l", "can't you $v $l",
]  # fmt: skip
ON_QUESTIONS = [
    "why is it so dark $at", "can [I|we] get some light $at", "can [I|we] have [some|a little|a bit of] light $at",
    "could [I|we] have some light $at", "any chance of some light $at", "can you make some light $at", "how about some light $at",
    "could you light up $r", "would you light $r for me", "can you give me some light $at", "isn't it too dark $at", "may we have light $at",
    "what about some light $at", "could you leave $l on",
]  # fmt: skip
OFF_QUESTIONS = [
    "who left $l on, can you turn $it off", "did I leave $l on, if so turn $it off", "could you kill $l", "would you kill $the $at",
    "do we really need $o on", "can $l go off", "can we do without $o", "can you put out $l", "may I have $l off now", "can you shut $l off",
]  # fmt: skip

# $p "to" what, $d the same if it is low, $u if it is high
LEVEL_COMMANDS = [
    "[set|put|turn|adjust|change|move|switch] $l to $p", "set $l to $p", "[set|put] $l at $p", "make $l $p", "make $l $p bright", "take $l to $p",
    "[set|adjust|change|put] the brightness of $l to $p", "set the brightness $w to $p", "[set|turn|put] $the to $p $at", "bring $l to $p",
    "dial $l to $p", "set the brightness $at at $p", "set $r brightness to $p", "turn on $l at $p", "[turn|switch] $l on at $p",
    "switch on $l at $p", "have $l at $p", "keep $l at $p", "leave $l at $p", "hold $l at $p", "give me $p brightness $at", "give me $p light $at",
    "get $l to $p", "run $l at $p", "light $r at $p", "light up $r [to|at] $p", "let $l shine at $p", "let me have $l at $p",
    "make the light $p $at", "go to $p brightness $at", "make it $p bright $at", "set brightness to $p $w", "set light level to $p $w",
    "set the light level $at to $p", "adjust the light $at to $p", "change brightness $at to $p", "put the brightness $at on $p",
    "turn $the to $p $w", "fade $l to $p",
]  # fmt: skip
DOWN_COMMANDS = [
    "dim $l to $p", "dim $l to $p", "dim $l to $p", "dim $l down to $p", "dim $the to $p $w", "dim $r to $p", "dim $the $w to $p",
    "dim it to $p $at", "turn $l down to $p", "turn down $l to $p", "lower $l to $p", "reduce $l to $p", "bring $l down to $p", "drop $l to $p",
    "take $l down to $p", "lower the brightness of $l to $p", "reduce the brightness $at to $p", "fade $l down to $p", "cut $l down to $p",
    "lower $the $at to $p", "tone $l down to $p", "tone down $l to $p", "dial $l down to $p", "soften $l to $p", "dim down $l to $p",
    "decrease $l to $p", "dim $r down to $p",
]  # fmt: skip
UP_COMMANDS = [
    "brighten $l to $p", "brighten $r to $p", "turn $l up to $p", "turn up $l to $p", "raise $l to $p", "increase $l to $p", "bring $l up to $p",
    "crank $l up to $p", "crank up $l to $p", "dial $l up to $p", "brighten up $l to $p", "boost $l to $p", "raise the brightness $at to $p",
    "increase the brightness of $l to $p", "pump $l up to $p", "turn $the up to $p $at", "push $l up to $p", "make it brighter $at, $p",
]  # fmt: skip
LEVEL_STATEMENTS = [
    "$k $p", "$k $p", "$k at $p", "$k to $p", "$k on $p", "$k, $p", "brightness $p $w", "$p light $at", "$n brightness $p", "$n light level $p",
    "lights $p $w", "lights to $p $w", "brightness $at $p", "brightness to $p $w", "$p brightness $w", "$p brightness for $r", "$at, $p brightness",
    "$k: $p", "I'd like $l at $p", "I want $l at $p", "I need $l at $p", "I'd like $l to be at $p", "$l should be at $p",
    "I want $p brightness $at", "$p would be [enough|fine|perfect|good] for $l", "$l at $p would be [nice|perfect|great]", "let's have $l at $p",
    "let's set $l to $p", "let's go for $p brightness $at", "$p is enough light $at", "$p light is enough $at", "I'd prefer $l at $p",
    "we want $l at $p", "$l $needs to be at $p", "I only need $p light $at", "$l at $p", "$l to $p", "$l on at $p", "let's try $l at $p",
    "I think $p is right for $l", "for $l, $p", "I need $p brightness $at", "time to set $l to $p", "you can set $l to $p",
    "I want you to set $l to $p", "it would be nice to have $l at $p", "we need $p light $at", "I'd like to set $l to $p",
    "I want the brightness $at at $p", "the brightness $at should be $p", "$l should shine at $p", "okay, $l to $p",
]  # fmt: skip
DOWN_STATEMENTS = [
    "I'd like $l dimmed to $p", "I want $l dimmed to $p", "it's too bright $at, [make it|dim it to|go down to|dim the light to] $p",
    "$k down to $p", "$l $is too bright, $p is enough", "$l dimmed to $p", "$l can go down to $p", "we only need $l at $p",
    "too bright $at, $p light will do", "$k dim to $p", "my eyes hurt, dim $l to $p", "$l should be dimmed to $p", "let's dim $l to $p",
    "I'd like you to dim $l to $p", "let's bring $l down to $p",
]  # fmt: skip
UP_STATEMENTS = [
    "it's too dark $at, [turn the light up to|make it|raise the light to|go up to] $p", "$k up to $p", "$l can go up to $p",
    "let's brighten $l to $p", "I need more light $at, $p", "I need it brighter $at, $p", "$l should go up to $p",
    "not bright enough $at, turn the light up to $p",
]  # fmt: skip
LEVEL_QUESTIONS = [
    "would you mind setting $l to $p", "can we have $l at $p", "could I get $p brightness $at", "how about $p for $l", "can $l be set to $p",
    "can you do $p brightness $at", "could we have $p light $at", "can I have $l at $p", "would you set $l to $p for me",
    "is it possible to set $l to $p", "what about $l at $p", "shall we set $l to $p", "why don't you set $l to $p", "could $l go to $p",
    "can you get $l to $p", "any chance of $p light $at", "may I have $l at $p", "could you keep $l at $p", "would it be possible to have $l at $p",
    "do you think you could set $l to $p",
]  # fmt: skip
DOWN_QUESTIONS = [
    "would you mind dimming $l to $p", "could $l be dimmed to $p", "can $l go down to $p", "mind dimming $l to $p", "how about dimming $l to $p",
    "could we dim $l to $p", "would you mind turning $l down to $p", "can we bring $l down to $p", "why don't we dim $l to $p",
    "may I have $l dimmed to $p",
]  # fmt: skip
FULL_COMMANDS = [
    "[turn|crank] $l [all the way up|up all the way|up to the max|up to full|up to maximum]", "make $l as bright as possible", "max out $l",
    "set $l as bright as [possible|it gets]", "put $l on [full|full power|maximum|max]",
    "give me [all the light you've got|full brightness|full light] $at", "make it as bright as [possible|you can] $at",
    "make $r as bright as possible", "set $l to [full|max|maximum|the maximum|full brightness|maximum brightness]", "turn $l on full",
    "turn on $l at full [brightness|power|blast]", "[turn|set|put] $l [to|on] the brightest setting", "light up $r as much as you can",
    "put $the on full blast $at", "crank up $l to the maximum", "bring $l to full power", "turn $l up to the maximum",
    "raise $l to full brightness",
]  # fmt: skip
FULL_STATEMENTS = [
    "full [brightness|power|light] $at", "maximum [light|brightness] $at", "I need as much light as possible $at",
    "I need all the light I can get $at", "$k [full|full brightness|max|maximum|to the max|at full power|full power|on full]",
    "I want $l as bright as possible", "I'd like $l at full brightness", "$l as bright as [possible|it gets]", "let's have full brightness $at",
    "I want it as bright as possible $at", "$l at full blast", "full blast on $l", "I'd like maximum brightness $at", "I need full light $at",
    "$l should be as bright as possible", "let's go all the way up with $l",
]  # fmt: skip
HALF_COMMANDS = [
    "[set|turn|put|dim|bring] $l to half", "[set|put] $l to half [power|brightness|strength]", "put $l on half [power|brightness|]",
    "dim $l halfway", "turn $l down halfway", "turn $l down to half", "give me half [brightness|power] $at", "set the brightness $at to half",
    "set $l at half", "turn on $l at half [power|brightness]", "make $l half as bright as $it can be", "run $l at half [power|strength]",
    "bring $l up to half", "dim $r to half",
]  # fmt: skip
HALF_STATEMENTS = [
    "$k [half|half brightness|at half|to half|on half power|at half power]", "half brightness $at", "half [the light|power] is enough $at",
    "half light $at", "I'd like $l at half [brightness|power]", "$l at half [power|brightness|strength]", "I want $l dimmed to half",
    "let's have $l at half", "$l to half", "half power for $l", "I only need half brightness $at", "I want half brightness $at",
]  # fmt: skip

COLOR_COMMANDS = [
    "[turn|make] $l $c", "[turn|make] $l $c", "[set|change|switch|turn|put] $l to $c", "set $l to $c", "change $l to $c", "[set|turn|put] $l on $c",
    "change the [color|colour] of $l to $c", "set the [color|colour] of $l to $c", "set the [color|colour] $at to $c", "[make|turn] $r $c",
    "make the light $c $at", "[color|colour] $l $c", "light $r up in $c", "light up $r in $c", "light $r in $c", "bathe $r in $c [light|]",
    "give me [some|] $c light $at", "give $r [some|a touch of] $c light", "switch to $c [light|] $at", "switch $l over to $c", "use $c light $at",
    "let $l shine [in|] $c", "let $l glow $c", "let $r glow in $c", "tint $l $c", "turn on [some|] $c light $at", "turn on $l in $c",
    "switch on $l in $c", "put on some $c light $at", "make it $c $at", "have $l in $c", "paint $r $c with light", "dip $r in $c light",
    "fill $r with $c light", "turn [the lights|the light] $c $at", "change $r to $c", "set $r to $c", "set $r lighting to $c",
    "go for $c light $at", "make all the lights $c $at", "flood $r with $c light", "change the light [color|colour] $at to $c",
    "show me $c light $at", "get me $c light $at", "put $r in $c light", "turn $r lights to $c", "create some $c light $at",
    "change the lighting $at to $c", "try $c for $l",
]  # fmt: skip
COLOR_STATEMENTS = [
    "$k $c", "$k $c", "$k in $c", "$k to $c", "$k, $c", "$c light $at", "$c lights $at", "$c [light|lights|lighting] $w", "$n $c", "$n lights $c",
    "$n in $c light", "I'd like $l in $c", "I'd like $l to be $c", "I want $l $c", "I want $l to be $c", "I [want|need|would like] $c light $at",
    "$l should be $c", "let's have $c light $at", "let's make $l $c", "let's turn $l $c", "let's go with $c $at",
    "I'm in the mood for $c light $at", "$c would be [nice|lovely|great] for $l", "$c light would be [nice|lovely|great] $at", "$l in $c",
    "$l to $c", "I'd love $c light $at", "$at, $c light", "I'd like to see $l in $c", "time for some $c light $at", "I want $r [in|to glow in] $c",
    "some $c light $at", "$l $needs to be $c", "we want $c light $at", "I'd prefer $l in $c", "I feel like $c light $at", "I'd like $c for $l",
    "my daughter wants $l $c", "my son wants $c light $at", "I think $l should be $c", "I'd rather have $l in $c", "$c for $l", "okay, $l in $c",
    "[color|colour] $at: $c", "$r should glow $c", "$r would look nice in $c light", "I don't like the color of $l, make $it $c",
    "let's try $c light $at", "you can make $l $c", "it would be nice if $l were $c", "I wish $l were $c",
]  # fmt: skip
COLOR_QUESTIONS = [
    "can $l be $c", "can we have $c light $at", "could I have $l in $c", "how about $c light $at", "would you mind making $l $c",
    "what about $c for $l", "can you make $l $c", "could you do $c $at", "would you mind changing $l to $c", "can $l go $c",
    "would you mind turning $l $c", "why not make $l $c", "is it possible to have $c light $at", "may I have $c light $at", "shall we make $l $c",
    "can I get some $c light $at", "could $l be $c", "can I have $l in $c", "do you think you could make $l $c", "any chance of $c light $at",
    "can you change the color $at to $c",
]  # fmt: skip
BOTH_COMMANDS = [
    "set $l to $c at $p", "set $l to $p $c", "set $l to $p and $c", "make $l $c and dim $it to $p", "turn $l $c and set $it to $p",
    "dim $l to $p in $c", "dim $l to $p and make $it $c", "turn $l $c at $p", "make $l $c with $p brightness", "set $l to $c with $p brightness",
    "set $l to $c, $p", "turn on $l in $c at $p", "put $l on $c at $p", "give me $p $c light $at", "give me $c light at $p $at",
    "light $r in $c at $p", "change $l to $c and the brightness to $p", "make $r $c at $p", "set brightness $at to $p and color to $c",
    "make $l $p $c", "light up $r $c at $p", "set the color of $l to $c and the brightness to $p", "put $l at $p brightness and make $it $c",
    "bring $l to $p $c", "switch $l to $c, brightness $p",
]  # fmt: skip
BOTH_STATEMENTS = [
    "$k $c $p", "$k $p $c", "$k $c at $p", "$k $c, $p", "$c light at $p $at", "$p $c light $at", "I'd like $l $c at $p", "I want $l $c and at $p",
    "$l in $c at $p", "$l should be $c at $p", "let's have $l $c at $p", "I'd like $c light $at, at $p", "I want $p $c $at", "$n $c $p",
    "$c at $p for $l", "I need $l at $p in $c", "$l to $c, brightness $p", "$l $p and $c",
]  # fmt: skip

DOING = [

    "[read|cook|eat|work|paint|study|clean up|sew|play|do yoga|tidy up|fix the sink|look for my keys|bake|draw|write|do my homework|change the baby]",
    "[feed the dog|find my glasses|put on my make-up|do the laundry|shave|get dressed|make dinner|repair the bike|wrap presents|play cards]",
]  # fmt: skip
ON_REASONS = [
    "I'm cooking now", "it's getting dark", "I'm home", "we just got home", "I'm back", "I heard a noise", "I dropped my keys",
    "I can't find my glasses",
    "guests are coming", "the sun has gone down", "I have to look for something", "I'm about to " + DOING[0], "I want to " + DOING[0],
    "I want to " + DOING[1], "I'm going to " + DOING[0], "we're about to " + DOING[0], "I need to " + DOING[1], "I have to " + DOING[1], "I'm up",
    "good morning",
    "I just woke up", "somebody's at the door", "the kids are scared", "my hands are full", "I've got my hands full", "it's so dark",
    "night is falling",
    "I can't see a thing", "my parents are coming over", "I'm carrying groceries", "the party starts soon", "I'm scared", "I'm on my way in",
]  # fmt: skip
OFF_REASONS = [
    "I'm going to bed", "good night", "we're leaving", "I'm off to work", "we're watching a movie now", "the baby is asleep", "nobody's in there",
    "the sun is up", "time to sleep", "we should save electricity", "I'm tired", "I'm heading out", "we're done here", "I'm finished",
    "it's bedtime", "the kids are asleep", "it's bright enough outside", "I have a headache", "everyone has left", "the guests are gone",
    "my hands are full", "we're all in bed", "the electricity bill is too high", "the movie is starting", "I'm done reading", "the sun is shining",
    "I want to sleep", "it's late", "it's past ten",
]  # fmt: skip
MOOD_REASONS = [
    "we're watching a film", "it's movie night", "dinner is served", "I have a headache", "it's date night", "the party is starting",
    "it's Halloween", "I want to relax", "I'm taking a bath", "it's too much", "we're having guests", "I'm reading", "I'm working",
    "time to unwind", "it's Christmas", "I want to read", "let's get cozy", "it's a romantic evening", "I'm doing yoga", "the show is on",
    "my eyes hurt", "we're gaming", "it's story time",
]  # fmt: skip
ANY_REASONS = [
    "ok", "okay", "ok so", "right", "alright", "listen", "so", "well", "quick thing", "one more thing", "computer", "house", "hm", "oh", "sorry",
    "yes",
]  # fmt: skip


def with_reason(rng, command, reasons):
    """A command with what leads to it: (text, form)."""
    reason = expand(rng, one_of(rng, ANY_REASONS if chance(rng, 0.3) else reasons))
    x = rng.random()
    if x < 0.45 and reason in ANY_REASONS:
        return reason + ", " + command, "statement"
    if x < 0.45:
        return reason + one_of(rng, [", ", ", ", ", so ", " so ", " - ", ", now ", ", please "]) + command, "statement"
    if x < 0.75:
        return reason + one_of(rng, [", can you ", ", could you ", ", would you ", ", will you ", ", can you "]) + command, "question"
    if reason in ANY_REASONS:
        return command + one_of(rng, [", ok", ", okay", ", will you", ", thank you"]), "statement"
    if reason.split()[0] in ("good", "time", "rise", "breakfast", "let's", "brr"):
        return command + ", " + reason, "statement"
    return command + one_of(rng, [", ", ", ", ", because ", " because ", " since ", ", you know, "]) + reason, "statement"


def percent(rng):
    """A brightness or position: (text, value)."""
    n = rng.randrange(0, 101, 10) if chance(rng, 0.4) else rng.randrange(0, 101, 5) if chance(rng, 0.35) else rng.randint(0, 100)
    text = copied(number(rng, n))
    if text[1].isdigit():
        return text + one_of(rng, [" percent", " percent", "%", "%", "%", " per cent", " %"]), n
    return text + one_of(rng, [" percent", " percent", " per cent"]), n


def a_color(rng):
    x = rng.random()
    if x < 0.45:
        return one_of(rng, COLORS[:22])
    if x < 0.78:
        return one_of(rng, COLORS)
    if x < 0.94:
        return one_of(rng, SHADES) + " " + one_of(rng, BASES)
    return new_word(rng) + " " + one_of(rng, BASES)


def done(rng, tool, arguments, text, form, replies, errors=ERRORS, **values):
    """The request of one call, that works or, seldom, does not."""
    if chance(rng, 0.025):
        reason = one_of(rng, errors)
        return Request(text, form, [(tool, arguments)], [{"error": reason}], expand(rng, one_of(rng, REFUSED), e=reason))
    reply = expand(rng, one_of(rng, replies), **values)
    return Request(text, form, [(tool, arguments)], [{"ok": True}], reply[0].upper() + reply[1:])


SWITCHED = [
    "$x [is|is now] $s.", "Okay, $x is $s.", "Done, $x is $s.", "$x: $s.", "Light $s $y.", "I've turned $s $x.", "I switched $x $s.", "Done.",
    "Okay, done.", "The light $y is $s.", "Sure, $x is $s now.", "All right, $x is $s.", "Okay, light $s $y.",
]  # fmt: skip
LEVELLED = [
    "$x is at $b percent.", "Okay, $x is at $b percent now.", "$b percent $y.", "Done, $x is set to $b percent.", "Set to $b percent.",
    "$x: $b percent.",
]  # fmt: skip
TINTED = ["$x is $c.", "Okay, $x is $c now.", "$c light $y.", "Done, $x is $c.", "Now it's $c $y.", "$x glows $c now.", "Switched to $c."]
TINTED_LEVELLED = ["$x is $c at $b percent.", "Okay, $c at $b percent $y.", "Done: $c, $b percent.", "$c light at $b percent $y."]


def light_reply(rng, text, form, arguments):
    name = arguments.get("room")
    if name is None:
        x, y = "the light", ""
    elif name == "all":
        x, y = "every light", "everywhere"
    else:
        x = "the light " + name if name in ADVERBS else the(name) + " light"
        y = "" if name in LAMPS else "at the " + name if name in SPOTS else where(name)
    replies = (
        SWITCHED if "on" in arguments else TINTED if "brightness" not in arguments else LEVELLED if "color" not in arguments else TINTED_LEVELLED
    )
    values = {"x": x, "y": y, "s": "on" if arguments.get("on") else "off", "b": str(arguments.get("brightness")), "c": arguments.get("color", "")}
    return done(rng, "set_light", arguments, text, form, replies, **values)


def switch_words(rng, on):
    return {
        "v": one_of(rng, ON_VERBS if on else OFF_VERBS),
        "ving": one_of(rng, ON_ING if on else OFF_ING),
        "s": "on" if on else "off",
    }


def style(rng, commands, statements, questions):
    """A pattern of one of three forms; the form "reason" is a command with a reason."""
    x = rng.random()
    if x < 0.53:
        pattern = one_of(rng, commands)
        return pattern, "statement" if pattern.startswith("don't") else "command" if x < 0.42 else "reason"
    if x < 0.85 or not questions:
        return one_of(rng, statements), "statement"
    return one_of(rng, questions), "question"


def written(rng, pattern, form, reasons, **values):
    """(text, form, room) of a pattern about lights."""
    more, name = target(rng, pattern)
    text = expand(rng, pattern, **more, **values)
    if form == "reason":
        text, form = with_reason(rng, text, reasons)
    return text, form, name


def arguments_of(name, **rest):
    return ({} if name is None else {"room": name}) | rest


def switched(rng):
    on = chance(rng, 0.54)
    special = chance(rng, 0.4)
    if special:
        lists = (ON_COMMANDS, ON_STATEMENTS, ON_QUESTIONS) if on else (OFF_COMMANDS, OFF_STATEMENTS, OFF_QUESTIONS)
    else:
        lists = (SWITCH_COMMANDS, SWITCH_STATEMENTS, SWITCH_QUESTIONS)
    pattern, form = style(rng, *lists)
    text, form, name = written(rng, pattern, form, ON_REASONS if on else OFF_REASONS, **switch_words(rng, on))
    return light_reply(rng, text, form, arguments_of(name, on=on))


def dimmed(rng):
    x = rng.random()
    if x < 0.1:
        text, n = "", 100
        lists = (FULL_COMMANDS, FULL_STATEMENTS, [])
    elif x < 0.18:
        text, n = "", 50
        lists = (HALF_COMMANDS, HALF_STATEMENTS, [])
    else:
        text, n = percent(rng)
        lists = (LEVEL_COMMANDS, LEVEL_STATEMENTS, LEVEL_QUESTIONS)
        if chance(rng, 0.5):
            if n < 70 and (n < 40 or chance(rng, 0.5)):
                lists = (DOWN_COMMANDS, DOWN_STATEMENTS, DOWN_QUESTIONS)
            elif n >= 40:
                lists = (UP_COMMANDS, UP_STATEMENTS, [])
    pattern, form = style(rng, *lists)
    if text and chance(rng, 0.12) and re.search(r"(to|at) \$p$", pattern):
        text = text[: text.index("}") + 1]
    text, form, name = written(rng, pattern, form, MOOD_REASONS, p=text)
    return light_reply(rng, text, form, arguments_of(name, brightness=n))


def tinted(rng):
    color = a_color(rng)
    pattern, form = style(rng, COLOR_COMMANDS, COLOR_STATEMENTS, COLOR_QUESTIONS)
    text, form, name = written(rng, pattern, form, MOOD_REASONS, c=copied(color))
    if re.search(r"(light|lights|lamp|lamps) \{light", text):
        return tinted(rng)
    return light_reply(rng, text, form, arguments_of(name, color=color))


def tinted_and_dimmed(rng):
    color = a_color(rng)
    level, n = percent(rng)
    pattern, form = style(rng, BOTH_COMMANDS, BOTH_STATEMENTS, [])
    text, form, name = written(rng, pattern, form, MOOD_REASONS, c=copied(color), p=level)
    if re.search(r"(light|lights|lamp|lamps) \{light", text):
        return tinted_and_dimmed(rng)
    return light_reply(rng, text, form, arguments_of(name, brightness=n, color=color))


# $a and $b rooms with their article, $ma and $mb without it, $pa and $pb places; one thing for both
TWO_SWITCH = [
    ("command", "$v the lights in $a and $b"), ("command", "$v the light in $a and in $b"), ("command", "$v $a and $mb lights"),
    ("command", "[turn|switch] $a and $mb lights $s"), ("command", "[turn|switch] $s $a and $mb [lights|lamps|light]"),
    ("command", "$v $a light and $b light"), ("command", "$v the lights $pa and $pb"), ("command", "[turn|switch] the lights $pa and $pb $s"),
    ("command", "[turn|switch] $a and $b lights $s"), ("command", "$v both $a and $b lights"), ("command", "$v the lights in both $a and $b"),
    ("command", "make sure the lights in $a and $b are $s"), ("command", "$v $a light and the one in $b"),
    ("command", "$v $a light, and $b light too"), ("command", "$v the lights $pa, and also the ones $pb"),
    ("command", "have the lights $pa and $pb $s"), ("command", "$v $a light and also $b light"), ("statement", "$ma and $mb lights $s"),
    ("statement", "[light|lights] $s in $a and $b"), ("statement", "[light|lights] $s $pa and $pb"), ("statement", "$ma light $s, $mb light $s"),
    ("statement", "lights $ma and $mb $s"), ("statement", "lights $s $ma and $mb"), ("statement", "I'd like the lights in $a and $b $s"),
    ("statement", "I want $a and $mb lights $s"), ("statement", "let's have the lights $s $pa and $pb"),
    ("statement", "$a and $b lights should be $s"), ("statement", "I need $a and $b lights $s"), ("statement", "$ma, $mb: lights $s"),
    ("statement", "I need the lights $s $pa as well as $pb"), ("statement", "time to $v the lights $pa and $pb"),
    ("statement", "we need the lights $pa and $pb $s"), ("question", "would you mind $ving the lights in $a and $b"),
    ("question", "can I have $a and $mb lights $s"), ("question", "can we have the lights $s $pa and $pb"),
    ("question", "how about $ving $a and $mb lights"), ("question", "could I have the lights in $a and $b $s"),
]  # fmt: skip
TWO_LEVEL = [
    ("command", "dim the lights in $a and $b to $p"), ("command", "set $a and $mb lights to $p"), ("command", "set the lights $pa and $pb to $p"),
    ("command", "turn $a and $b light to $p"), ("command", "set brightness to $p in $a and $b"), ("statement", "$ma and $mb lights $p"),
    ("statement", "$ma and $mb lights at $p"), ("statement", "I'd like the lights in $a and $b at $p"), ("statement", "lights $pa and $pb to $p"),
    ("command", "dim $a and $b to $p"), ("question", "can we have the lights $pa and $pb at $p"),
    ("command", "bring the lights in both $a and $b to $p"),
]  # fmt: skip
TWO_TINT = [
    ("command", "make the lights in $a and $b $c"), ("command", "turn $a and $mb lights $c"), ("command", "set the lights $pa and $pb to $c"),
    ("command", "make $a and $b $c"), ("statement", "$ma and $mb lights $c"), ("statement", "$c light in $a and $b"),
    ("statement", "I want $c light $pa and $pb"), ("command", "change the lights in $a and in $b to $c"),
    ("question", "can the lights in $a and $b be $c"), ("command", "give $a and $b $c light"),
]  # fmt: skip
THREE_SWITCH = [
    ("command", "$v the lights in $a, $b and $d"), ("command", "$v $a, $mb and $md lights"), ("statement", "$ma, $mb and $md lights $s"),
    ("statement", "lights $s in $a, $b and $d"), ("command", "[turn|switch] $a, $b and $d lights $s"),
    ("statement", "I want the lights $s $pa, $pb and $pd"),
]  # fmt: skip
# each room its own state
CONTRAST = [
    ("statement", "$ma [light|lights] $s, $mb [light|lights] $t"), ("statement", "$ma light $s and $mb light $t"),
    ("statement", "lights $s $pa and $t $pb"), ("command", "turn $a light $s and $b light $t"), ("command", "turn the light $s $pa and $t $pb"),
    ("command", "switch $a lights $s and $b lights $t"), ("command", "turn $s $a light but turn $t $b light"),
    ("statement", "I want $a light $s and $b light $t"), ("statement", "$ma $s, $mb $t, the lights I mean"),
    ("question", "can I have $a light $s and $b light $t"), ("command", "switch $s the light $pa and switch $t the one $pb"),
    ("statement", "I'd like the light $pa $s and the one $pb $t"), ("command", "turn $s the lights $pa and turn $t the lights $pb"),
]  # fmt: skip
CONTRAST_LEVEL = [
    ("command", "set $a light to $p and $b light to $q"), ("statement", "$ma light $p, $mb light $q"),
    ("command", "dim $a lights to $p and $b lights to $q"), ("command", "set the light $pa to $p and the one $pb to $q"),
    ("statement", "I'd like $a light at $p and $b light at $q"), ("statement", "lights to $p $pa and $q $pb"),
]  # fmt: skip
CONTRAST_TINT = [
    ("command", "make $a $c and $b $e"), ("command", "turn $a lights $c and $b lights $e"), ("statement", "$ma light $c, $mb light $e"),
    ("statement", "$c light $pa and $e light $pb"), ("command", "set $a light to $c and $b light to $e"),
    ("statement", "I want $a light $c and the one $pb $e"),
]  # fmt: skip
# a correction within the sentence: the second room counts
CORRECTED = [
    ("command", "$v $a light, no, $b light"), ("command", "$v $a light, sorry, I mean $b light"), ("command", "$v the light $pa, no wait, $pb"),
    ("statement", "$ma light $s, no, $mb light"), ("command", "$v the lights $pa, I mean $pb"),
    ("command", "[turn|switch] $a light $s, I mean $b light"), ("statement", "not $a light, $b light $s"), ("command", "$v $b light, not $a light"),
    ("command", "$v the light $pb, not $pa"),
]  # fmt: skip


def rooms_apart(rng, count):
    """Rooms that are not the same, as the slots of the patterns above: (values, names)."""
    names, values = [], {}
    while len(names) < count:
        text, name = room_phrase(rng)
        if name in names or text.startswith(("my ", "our ")):
            continue
        key = "abd"[len(names)]
        names.append(name)
        values.update({key: text, "m" + key: copied(name), "p" + key: place(text, name)})
    return values, names


def several(rng, names, all_arguments, text, form):
    """The request of one call for each room."""
    calls = [("set_light", arguments) for arguments in all_arguments]
    results = [{"ok": True} for _ in calls]
    listed = " and ".join(the(name) for name in names) if len(names) < 3 else the(names[0]) + ", " + the(names[1]) + " and " + the(names[2])
    if chance(rng, 0.04):
        broken = rng.randrange(len(calls))
        reason = one_of(rng, ERRORS)
        results[broken] = {"error": reason}
        others = " and ".join(the(name) for i, name in enumerate(names) if i != broken)
        reply = f"Done for {others}, but not for {the(names[broken])}: {reason}."
        return Request(text, form, calls, results, reply)
    reply = one_of(rng,
        ["Done.", "Okay, both are set." if len(names) == 2 else "Okay, all are set.", f"Done: {listed}.", f"Okay, I've set the lights in {listed}."])
    return Request(text, form, calls, results, reply)


def two_rooms(rng):
    values, names = rooms_apart(rng, 2)
    x = rng.random()
    on = chance(rng, 0.5)
    words = switch_words(rng, on)
    if x < 0.45:
        form, pattern = one_of(rng, TWO_SWITCH)
        each = [{"on": on}] * 2
    elif x < 0.55:
        level, n = percent(rng)
        words["p"] = level
        form, pattern = one_of(rng, TWO_LEVEL[1:5] if n > 80 else TWO_LEVEL)
        each = [{"brightness": n}] * 2
    elif x < 0.65:
        color = a_color(rng)
        words["c"] = copied(color)
        form, pattern = one_of(rng, TWO_TINT)
        each = [{"color": color}] * 2
    elif x < 0.74:
        more, names = rooms_apart(rng, 3)
        values = more
        form, pattern = one_of(rng, THREE_SWITCH)
        each = [{"on": on}] * 3
    elif x < 0.88:
        words["t"] = "off" if on else "on"
        form, pattern = one_of(rng, CONTRAST)
        each = [{"on": on}, {"on": not on}]
    elif x < 0.94:
        (p, n), (q, m) = percent(rng), percent(rng)
        words.update(p=p, q=q)
        form, pattern = one_of(rng, CONTRAST_LEVEL)
        each = [{"brightness": n}, {"brightness": m}]
    else:
        c, e = a_color(rng), a_color(rng)
        words.update(c=copied(c), e=copied(e))
        form, pattern = one_of(rng, CONTRAST_TINT)
        each = [{"color": c}, {"color": e}]
    text = expand(rng, pattern, **values, **words)
    if re.search(r"(light|lights|lamp|lamps) \{light", text):
        return two_rooms(rng)
    return several(rng, names, [{"room": name} | rest for name, rest in zip(names, each)], text, form)


def corrected(rng):
    values, names = rooms_apart(rng, 2)
    on = chance(rng, 0.5)
    form, pattern = one_of(rng, CORRECTED)
    text = expand(rng, pattern, **values, **switch_words(rng, on))
    return light_reply(rng, text, "statement", {"room": names[1], "on": on})


FOLLOW_ROOM = [
    ("statement", "now $r too"), ("statement", "now $r"), ("statement", "now $at [too|as well|]"), ("question", "and $r"), ("statement", "and $r"),
    ("statement", "and $at"), ("question", "and $at"), ("statement", "and $at too"), ("statement", "the same [in|for] $r"),
    ("statement", "same for $r"), ("statement", "same thing $at"), ("statement", "same $at"), ("statement", "$n too"), ("statement", "$n as well"),
    ("statement", "$r [too|also|as well]"), ("statement", "also $at"), ("statement", "also $r"), ("command", "do $r [too|as well|next]"),
    ("command", "do the same [in|for] $r"), ("command", "do the same $at"), ("statement", "now do $r"), ("question", "what about $r"),
    ("question", "how about $r"), ("statement", "and the one $at"), ("statement", "and the ones $at"), ("statement", "and $r [light|lights] too"),
    ("statement", "and [also|then] $r"), ("command", "repeat that [in|for] $r"), ("statement", "I want the same $at"), ("statement", "$at too"),
    ("statement", "$at as well"), ("statement", "next $r"), ("statement", "then $r"), ("statement", "oh and $r"), ("statement", "plus $r"),
    ("question", "can I have the same $at"), ("question", "can you do that $at too"), ("statement", "and now the same $at"),
    ("statement", "I'd like that $at too"), ("command", "do it $at as well"), ("statement", "ditto [in|for] $r"),
]  # fmt: skip
FOLLOW_CORRECTION = [
    "no, $r", "no, I meant $r", "sorry, I meant $r", "I meant $r", "not there, $at", "wrong room, $r", "sorry, $r", "no, $at", "no, the one $at",
    "oops, I meant $r", "I mean $r", "no, no, $r", "not that one, the one $at", "wrong one, I want $r", "actually, I meant $r",
    "no, not that, $r light",
]  # fmt: skip
FOLLOW_OFF = [
    ("statement", "and off again"), ("command", "turn [it|them] off again"), ("statement", "off again"), ("statement", "ok off again"),
    ("statement", "now off"), ("statement", "never mind, off again"), ("statement", "actually, turn [it|them] off again"),
    ("statement", "you can turn [it|them] off now"), ("statement", "changed my mind, off"), ("command", "switch [it|them] off again"),
    ("statement", "and now off"), ("statement", "that's enough, off again"), ("statement", "no, off"), ("command", "turn that off again"),
    ("question", "and off again"), ("statement", "I don't need [it|them] any more"), ("command", "turn [it|them] back off"),
    ("statement", "back off again"), ("statement", "and out again"), ("command", "shut [it|them] off again"),
    ("statement", "ok, that's enough light, off"), ("question", "can you turn [it|them] off again"),
    ("statement", "and switch [it|them] off again"), ("statement", "done, you can turn [it|them] off"),
    ("question", "would you mind turning [it|them] off again"), ("command", "switch that off again"),
]  # fmt: skip
FOLLOW_ON = [
    ("statement", "and on again"), ("command", "turn [it|them] on again"), ("statement", "on again"), ("statement", "back on"),
    ("command", "turn [it|them] back on"), ("statement", "no, back on"), ("statement", "actually, turn [it|them] on again"),
    ("statement", "changed my mind, on again"), ("statement", "and back on"), ("command", "switch [it|them] on again"),
    ("statement", "never mind, back on"), ("statement", "no wait, on"), ("command", "switch [it|them] back on"),
    ("statement", "too dark now, turn [it|them] on again"), ("question", "can you turn [it|them] on again"), ("statement", "oops, on again"),
    ("statement", "now it's too dark, back on"), ("command", "put [it|them] on again"), ("statement", "I still need [it|them], back on"),
    ("statement", "hey I was still in there, back on"), ("question", "would you mind turning [it|them] on again"),
    ("statement", "and now on again"),
]  # fmt: skip
FOLLOW_LEVEL = [
    ("command", "make it $p"), ("command", "make that $p"), ("statement", "now $p"), ("statement", "and now $p"), ("statement", "no, $p"),
    ("statement", "rather $p"), ("statement", "$p instead"), ("statement", "$p"), ("statement", "better $p"), ("command", "set [it|them] to $p"),
    ("command", "set [it|them] to $p instead"), ("statement", "actually $p"), ("statement", "let's try $p"), ("command", "change it to $p"),
    ("statement", "to $p"), ("command", "make it $p instead"), ("statement", "I'd prefer $p"), ("statement", "hmm, $p"), ("question", "and at $p"),
    ("statement", "I said $p"), ("command", "go to $p"), ("command", "try $p"), ("statement", "$p is better"), ("statement", "$p, not more"),
    ("question", "how about $p"), ("statement", "but at $p"), ("question", "can you make it $p"), ("statement", "and set [it|them] to $p"),
]  # fmt: skip
FOLLOW_DIM = [
    ("command", "dim [it|them] to $p"), ("statement", "and dim [it|them] to $p"), ("statement", "too bright, $p"),
    ("statement", "that's too bright, make it $p"), ("statement", "less, $p"), ("statement", "a bit less, $p"),
    ("command", "turn [it|them] down to $p"), ("statement", "now dim [it|them] to $p"), ("statement", "down to $p"),
    ("question", "could you dim [it|them] to $p"),
]  # fmt: skip
FOLLOW_TINT = [
    ("command", "make [it|them] $c"), ("statement", "now $c"), ("statement", "and now $c"), ("statement", "no, $c"), ("statement", "rather $c"),
    ("statement", "$c instead"), ("command", "make it $c instead"), ("statement", "now in $c"), ("statement", "and in $c"), ("command", "try $c"),
    ("command", "change it to $c"), ("question", "how about $c"), ("statement", "better $c"), ("statement", "actually $c"),
    ("statement", "I'd prefer $c"), ("statement", "$c would be better"), ("statement", "let's try $c"), ("command", "turn [it|them] $c"),
    ("statement", "in $c"), ("question", "and in $c"), ("statement", "hm, $c"), ("statement", "but in $c"), ("command", "switch to $c"),
    ("question", "can you make [it|them] $c"), ("command", "set [it|them] to $c"),
]  # fmt: skip
FOLLOW_ALL = [
    "now everywhere", "and everywhere", "now all [the lights|of them]", "do that everywhere", "the same [everywhere|in the whole house]",
    "everywhere, I mean", "and now the whole house", "in fact, all the lights", "all of them", "the whole house", "everywhere in the house",
    "no, all the lights", "I meant all the lights",
]  # fmt: skip


def follow_light(rng, arguments):
    rest = {key: value for key, value in arguments.items() if key != "room"}
    here = {"room": arguments["room"]} if "room" in arguments else {}
    x = rng.random()
    if x < 0.42:
        text, name = room_place(rng)
        if name in ADVERBS:
            pattern = one_of(rng, ["and $at", "$at too", "now $at", "also $at", "same $at", "$at as well", "and now $at", "now $at too"])
            form, values = "statement", {"at": text}
        else:
            r, name = room_phrase(rng)
            values = {"r": r, "n": copied(name), "at": place(r, name)}
            form, pattern = one_of(rng, FOLLOW_ROOM)
            if "room" in arguments and arguments["room"] != "all" and chance(rng, 0.2):
                form, pattern = "statement", one_of(rng, FOLLOW_CORRECTION)
        if name == arguments.get("room") or arguments.get("room") == "all":
            return None
        return light_reply(rng, expand(rng, pattern, **values), form, {"room": name} | rest)
    if x < 0.47 and arguments.get("room") != "all":
        text = expand(rng, one_of(rng, FOLLOW_ALL))
        return light_reply(rng, text, "command" if text.startswith("do ") else "statement", {"room": "all"} | rest)
    if x < 0.65:
        off = arguments.get("on") is False
        form, pattern = one_of(rng, FOLLOW_ON if off else FOLLOW_OFF)
        return light_reply(rng, expand(rng, pattern), form, here | {"on": off})
    if arguments.get("on") is False:
        return None
    if "color" in arguments and ("brightness" not in arguments or chance(rng, 0.5)) or ("on" in arguments and x > 0.85):
        color = a_color(rng)
        form, pattern = one_of(rng, FOLLOW_TINT)
        kept = {"brightness": arguments["brightness"]} if "brightness" in arguments else {}
        return light_reply(rng, expand(rng, pattern, c=copied(color)), form, here | kept | {"color": color})
    level, n = percent(rng)
    lists = FOLLOW_LEVEL + FOLLOW_DIM if n < min(arguments.get("brightness", 100), 80) else FOLLOW_LEVEL
    form, pattern = one_of(rng, lists)
    kept = {"color": arguments["color"]} if "color" in arguments else {}
    return light_reply(rng, expand(rng, pattern, p=level), form, here | {"brightness": n} | kept)


REQUESTS = {
    "set_light on": (10, switched),
    "set_light brightness": (5, dimmed),
    "set_light color": (4, tinted),
    "set_light both": (1, tinted_and_dimmed),
    "set_light rooms": (2, two_rooms),
    "set_light corrected": (0.3, corrected),
}
FOLLOWS = {"set_light": follow_light}
