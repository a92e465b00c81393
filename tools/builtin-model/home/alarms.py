"""Requests to set and to cancel alarms, for the time and for the date, and what follows them.

`clock(rng, hour, minute, mark)` knows the ways to say a time of day, `moment(rng)` puts it together with a day.
"""

import re

from grammar import Request, chance, copied, expand, in_words, one_of
from places import mentioned

WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
SHORT = {"monday": "mon", "tuesday": "tues", "wednesday": "wed", "thursday": "thurs", "friday": "fri", "saturday": "sat", "sunday": "sun"}
HOUR_WORDS = [in_words(n) for n in range(1, 13)]
PARTS = {"morning": " in the morning", "afternoon": " in the afternoon", "evening": " in the evening", "night": " at night"}
MINUTES = [0] * 9 + [30] * 7 + [15] * 4 + [45] * 4 + [10, 20, 40, 50, 5, 25, 35, 55] * 2
PART_HOURS = {
    "morning": [4, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 9, 10, 11, 1, 2, 3],
    "afternoon": [13, 13, 14, 14, 15, 15, 16, 16, 17, 12],
    "evening": [17, 18, 18, 19, 19, 20, 20, 21, 21, 22],
    "night": [20, 21, 21, 22, 22, 23, 23, 1, 2, 3, 0],
    "early": [4, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 9, 10, 11],
    "late": [18, 19, 19, 20, 20, 21, 21, 22, 22, 23],
}


def some_minute(rng):
    return one_of(rng, MINUTES) if chance(rng, 0.85) else rng.randint(1, 59)


def hour_name(rng, hour, words):
    n = (hour - 1) % 12 + 1
    return in_words(n) if words else str(n)


def minute_words(rng, minute):
    if minute < 10:
        return one_of(rng, ["oh ", "oh ", "o "]) + in_words(minute)
    return in_words(minute, one_of(rng, ["-", "-", " "]))


def relative(rng, hour, minute):
    """ "ten past six", "quarter to 8", "twenty-five after nine"."""
    words = chance(rng, 0.72)
    past = minute <= 30
    n = minute if past else 60 - minute
    name = hour_name(rng, hour if past else hour + 1, words)
    if n == 30:
        return one_of(rng, ["half past ", "half past ", "half past ", "half-past "]) + name
    between = one_of(rng, ["past", "past", "past", "after"]) if past else one_of(rng, ["to", "to", "to", "to", "till", "til", "before"])
    if n == 15 and chance(rng, 0.9):
        return one_of(rng, ["quarter ", "quarter ", "a quarter "]) + ("to" if between == "before" else between) + " " + name
    text = in_words(n, one_of(rng, ["-", " "])) if words else str(n)
    if n % 5 or between == "before" or chance(rng, 0.12):
        text += " minute" if n == 1 else " minutes"
    return f"{text} {between} {name}"


def meridiem(rng, hour):
    letter = "a" if hour < 12 else "p"
    return one_of(rng, [" %sm", " %sm", " %sm", "%sm", " %sM", " %s.m."]).replace("%s", letter).replace("aM", "AM").replace("pM", "PM")


def clock(rng, hour, minute, mark):
    """A time of day in braces; mark "" leaves am or pm to a word of the context, "m" says it."""
    end = meridiem(rng, hour) if mark == "m" else ""
    dice = rng.random()
    n = str((hour - 1) % 12 + 1)
    if minute == 0:
        if end:
            text = n if dice < 0.7 else hour_name(rng, hour, True) if dice < 0.9 else n + ":00"
            end = end if text[0].isdigit() else " " + end.strip()
        else:
            forms = [n, n, n, f"{n} o'clock", f"{n} o'clock", f"{n}:00", f"{n} oclock"] if dice < 0.55 else ["%", "%", "%", "% o'clock", "% o'clock"]
            text = one_of(rng, forms).replace("%", hour_name(rng, hour, True))
        return copied(text + end)
    if dice < 0.42:
        text = f"{n}:{minute:02}" if dice < 0.28 else f"{n}.{minute:02}" if dice < 0.34 else f"{n} {minute:02}" if dice < 0.37 else f"{n}{minute:02}"
        text = "0" + text if len(n) == 1 and hour < 12 and chance(rng, 0.1) else text
        return copied(text + end)
    end = " " + end.strip() if end else ""
    if dice < 0.64:
        return copied(hour_name(rng, hour, True) + " " + minute_words(rng, minute) + end)
    if end and (hour % 12 == 11 and minute > 30 or minute not in (15, 30, 45) and chance(rng, 0.6)):
        return copied(hour_name(rng, hour, True) + " " + minute_words(rng, minute) + end)
    return copied(relative(rng, hour, minute) + end)


def clock_24(rng):
    """(text, hour, minute) of a time said on 24 hours: "18:45", "0730", "eighteen thirty", "oh six hundred"."""
    hour, minute = rng.randint(0, 23), some_minute(rng)
    dice = rng.random()
    if dice < 0.5:
        hour = rng.randint(13, 23) if chance(rng, 0.6) else hour
        text = f"{hour:02}:{minute:02}"
    elif dice < 0.6:
        hour = rng.randint(13, 23)
        text = f"{hour}.{minute:02}"
    elif dice < 0.8:
        text = f"{hour:02}{minute:02}" + one_of(rng, ["", "", " hours"])
    elif dice < 0.92:
        hour = rng.randint(13, 23)
        text = in_words(hour, one_of(rng, ["-", " "])) + " " + (minute_words(rng, minute) if minute else "hundred" + one_of(rng, ["", " hours"]))
    else:
        hour = rng.randint(1, 9)
        zero = one_of(rng, ["oh ", "zero "])
        text = zero + in_words(hour) + " " + (minute_words(rng, minute) if minute > 9 else "hundred" + one_of(rng, ["", " hours"]))
        minute = minute if minute > 9 else 0
    return copied(text), hour, minute


def hhmm(hour, minute):
    return f"{hour:02}:{minute:02}"


def bare_clock(rng):
    """A time taken as it is said, and without any doubt about "to one"."""
    hour = one_of(rng, [5, 6, 6, 6, 7, 7, 7, 8, 8, 9, 9, 10, 11]) if chance(rng, 0.75) else rng.randint(1, 11)
    minute = some_minute(rng)
    if chance(rng, 0.04):
        hour, minute = 12, one_of(rng, [10, 15, 20, 30])
    return clock(rng, hour, minute, ""), hhmm(hour, minute)


def marked_clock(rng):
    """With am or pm, never at twelve."""
    hour, minute = one_of(rng, [5, 6, 6, 7, 7, 8, 9, 10, 11, 4, 3, 2, 1] + list(range(13, 24))), some_minute(rng)
    return clock(rng, hour, minute, "m"), hhmm(hour, minute)


def part_clock(rng, part):
    """A time that fits to a part of the day; "early" is a morning and "late" a night without the small hours."""
    hour, minute = one_of(rng, PART_HOURS[part]), some_minute(rng)
    if hour in (0, 12) and minute == 0:
        minute = 30
    return clock(rng, hour, minute, ""), hhmm(hour, minute)


def named_clock(rng):
    """Noon, midnight and what is near to them."""
    text, time = one_of(
        rng,
        [("noon", "12:00")] * 4
        + [("midday", "12:00"), ("12 noon", "12:00"), ("twelve noon", "12:00"), ("ten past noon", "12:10"), ("quarter past noon", "12:15")]
        + [("half past noon", "12:30"), ("ten to noon", "11:50"), ("quarter to noon", "11:45"), ("five to noon", "11:55"), ("noon sharp", "12:00")],
    )
    return copied(text), time


def midnight_clock(rng):
    text, time = one_of(
        rng,
        [("midnight", "00:00")] * 5
        + [("half past midnight", "00:30"), ("quarter past midnight", "00:15"), ("ten to midnight", "23:50"), ("quarter to midnight", "23:45")]
        + [("five past midnight", "00:05"), ("12 midnight", "00:00"), ("five to midnight", "23:55"), ("ten past midnight", "00:10")],
    )
    return copied(text), time


def cased(rng, day):
    return day.capitalize() if chance(rng, 0.5) else day


def day_words(rng, day, part):
    """(bare, with its preposition) of a day, with a part of it or without: ("{friday} morning", "on {friday} morning")."""
    tail = " " + part if part else ""
    if day == "tomorrow":
        return "tomorrow" + tail, "tomorrow" + tail
    if day == "today":
        text = {"": "today", "morning": "this morning", "afternoon": "this afternoon", "evening": "this evening", "night": "tonight"}[part]
        return text, text
    if day == "weekdays":
        if part:
            text = one_of(rng, [f"weekday {part}s", f"every weekday {part}", f"each weekday {part}"])
            return text, text if text[0] == "e" else "on " + text
        on = one_of(rng, ["weekdays", "weekdays", "weekdays", "workdays", "work days", "working days"])
        other = one_of(rng, ["every weekday", "each weekday", "every workday", "every working day", "{monday} to {friday}", "{Monday} to {Friday}",
                             "{Monday} through {Friday}", "{mon}-{fri}"])  # fmt: skip
        return (on, "on " + on) if chance(rng, 0.5) else (other, other)
    if day == "weekends":
        if part:
            text = one_of(rng, [f"weekend {part}s", f"every weekend {part}"])
            return text, text if text[0] == "e" else "on " + text
        return one_of(rng, [("weekends", "on weekends"), ("weekends", "on weekends"), ("weekends", "at weekends"), ("every weekend", "every weekend"),
                            ("weekends", "on the weekends")])  # fmt: skip
    if day == "every day":
        if part:
            text = one_of(rng, ["every ", "every ", "each "]) + part
            return text, text
        text = one_of(rng, ["every day", "every day", "every day", "each day", "daily", "every single day", "everyday", "seven days a week"])
        return text if text[0] == "e" else "every day", text
    name = copied(cased(rng, day))
    dice = rng.random()
    if dice < 0.72:
        return name + tail, one_of(rng, ["on ", "on ", "on ", "this "]) + name + tail
    if dice < 0.8 and not part:
        name = copied(cased(rng, SHORT[day]))
        return name, "on " + name
    if dice < 0.86:
        return "next " + name + tail, "next " + name + tail
    if dice < 0.93:
        text = one_of(rng, ["every ", "each "]) + name + tail
        return text, text
    return name[:-1] + ("}" + tail + "s" if part else "s}"), "on " + name[:-1] + ("}" + tail + "s" if part else "s}")


def any_day(rng):
    dice = rng.random()
    if dice < 0.34:
        return "tomorrow"
    return one_of(rng, WEEKDAYS) if dice < 0.66 else one_of(rng, ["today", "weekdays", "weekends", "every day"])


def moment(rng, day_chance=0.5):
    """A time with or without a day: (values for the patterns, arguments).

    $at "at {7} tomorrow", $for "for tomorrow at {7}", $by "by {7} tomorrow", $when "tomorrow, {7}", $alarm "{7 am} alarm for tomorrow"
    """
    day = any_day(rng) if chance(rng, day_chance) else None
    part = ""
    if day:
        if chance(rng, 0.8 if day == "today" else 0.42):
            part = one_of(rng, ["night", "night", "night", "evening", "evening", "afternoon", "morning"] if day == "today"
                          else ["morning"] * 7 + ["evening", "afternoon", "night"])  # fmt: skip
        if part:
            text, time = part_clock(rng, {"morning": "early", "night": "late"}.get(part, part))
            spoken = text
            if chance(rng, 0.1) and time[:2] not in ("00", "12"):
                spoken = text = clock(rng, int(time[:2]), int(time[3:]), "m")
            name = f"{hourly(text)} alarm"
            bare, on = day_words(rng, day, part)
        else:
            dice = rng.random()
            text, time = marked_clock(rng) if dice < 0.35 or day == "today" else named_clock(rng) if dice < 0.39 else bare_clock(rng)
            if dice > 0.93:
                text, hour, minute = clock_24(rng)
                time = hhmm(hour, minute)
            spoken = text
            name = f"{hourly(text)} alarm"
            if dice < 0.6 and dice > 0.5 and day != "today":
                part = one_of(rng, ["morning", "morning", "afternoon", "evening"])
                text, time = part_clock(rng, part)
                spoken = text + PARTS[part]
                name = f"alarm at {spoken}"
            bare, on = day_words(rng, day, "")
        values = {
            "at": one_of(rng, [f"at {spoken} {on}", f"at {spoken} {on}", f"{on} at {spoken}", f"{bare} at {spoken}"]),
            "for": one_of(rng, [f"for {spoken} {on}", f"for {spoken} {on}", f"for {bare} at {spoken}", f"{on} at {spoken}"]),
            "by": one_of(rng, [f"by {spoken} {on}", f"{on} by {spoken}"]),
            "when": one_of(rng, [f"{spoken} {on}", f"{spoken} {bare}", f"{bare} {spoken}", f"{bare}, {spoken}", f"{bare} at {spoken}"]),
            "until": f"{spoken} {on}",
            "alarm": f"{name} {one_of(rng, [on, 'for ' + bare])}" if name[0] == "{" else f"{name} {on}",
        }
        return values, {"time": time, "day": day}
    dice, part = rng.random(), ""
    if dice < 0.45:
        text, time = bare_clock(rng)
        spoken = text
    elif dice < 0.66:
        text, time = marked_clock(rng)
        spoken = text
    elif dice < 0.84:
        part = one_of(rng, ["morning", "morning", "morning", "afternoon", "evening", "evening", "night"])
        text, time = part_clock(rng, part)
        spoken = text + PARTS[part]
    elif dice < 0.94:
        text, hour, minute = clock_24(rng)
        time, spoken = hhmm(hour, minute), text
    else:
        text, time = named_clock(rng) if dice < 0.975 else midnight_clock(rng)
        spoken = text
    if chance(rng, 0.04) and "sharp" not in spoken:
        spoken += one_of(rng, [" sharp", " on the dot", " exactly"])
    name = "alarm at " + spoken if part else hourly(text) + " alarm"
    return {"at": "at " + spoken, "for": "for " + spoken, "by": "by " + spoken, "when": spoken, "until": spoken, "alarm": name}, {"time": time}


def hourly(text):
    """A time as an adjective: a bare number wants its "o'clock"."""
    word = text.strip("{}")
    return copied(word + " o'clock") if word.isdigit() and len(word) < 3 or word in HOUR_WORDS else text.replace("{a quarter", "{quarter")


def with_article(text):
    word = text.lstrip("{")
    digits = re.match(r"\d*", word).group()
    hour = digits[:-2] if len(digits) > 2 else digits
    return ("an " if hour in ("8", "11", "18") or word.startswith(("eight", "eleven", "oh ", "alarm")) else "a ") + text


PURPOSE = "[||||||| for work| for school| for the gym| for my flight| for the train| for church| for my run| for practice| for the airport]"
SET = [
    "[set|create|make|add|schedule|program|put in] [an|the|my|a new] alarm $for$p",
    "[set|create|make|add|schedule] an alarm $at$p",
    "[set|put|turn on|switch on|activate|enable] [the|my|an] alarm [clock|] $for",
    "set [the|my] alarm clock [$for|$at]",
    "set alarm [$for|$at|$when]",
    "[set|make] [the|an|my] alarm, $when",
    "wake me [up|] $at$p",
    "wake me [up|] [at around|] $when",
    "wake me [up|], $when",
    "wake us [up|] $at",
    "wake me [up|] $by",
    "[wake|get] [the kids|the children|everyone|the boys|the girls|us all] up $at",
    "get me up $at$p",
    "get me up $by",
    "get me out of bed $at",
    "get us up $at",
    "pull me out of bed $at",
    "kick me out of bed $at",
    "shake me awake $at",
    "rouse me $at",
    "ring $at",
    "ring me awake $at",
    "have the alarm [ring|go off|sound|wake me] $at",
    "make the alarm [ring|go off|sound] $at",
    "let the alarm [ring|go off|sound] $at",
    "make sure I['m| am] [up|awake|out of bed] [$by|$at]",
    "make sure I wake up $at",
    "make sure I get up $at",
    "see that I'm [up|awake] $by",
    "set me an alarm $for",
    "give me an alarm $at",
    "give me a wake-up [call|alarm] $at",
    "schedule a wake-up [call|alarm] $for",
    "[set|create|add|make] $an",
    "[set|add] another alarm $for",
    "add an extra alarm $at",
    "[set|schedule] a wake-up time of $when",
    "let me sleep until $until, then wake me",
    "let me sleep till $until and then wake me up",
    "put an alarm on $for",
    "put the alarm on $for",
    "put on an alarm $for",
    "book me a wake-up call $for",
    "plan an alarm $for",
    "[start|fire up] the alarm $at",
    "set up an alarm $for",
    "go off $at",
    "turn on $an",
    "wake me with an alarm $at",
    "set a wake up alarm $for",
    "set a morning call $at",
    "[alert|beep] me with an alarm $at",
    "sound the alarm $at",
    "get me going $at with an alarm",
    "set an alarm to [ring|go off|wake me] $at",
    "set an alarm that [rings|goes off] $at",
    "set an alarm so I'm up $at",
]
SET_STATEMENT = [
    "alarm [$for|$at]$p",
    "alarm, $when",
    "alarm: $when",
    "alarm $when",
    "alarm clock [$for|$at|$when]",
    "alarm on $for",
    "an alarm [$for|$at]",
    "$alarm",
    "$an",
    "$when[,|] alarm",
    "$when, wake me up",
    "wake-up [call|alarm] [$for|$at]",
    "wake up $at",
    "wakeup $when",
    "new alarm[,|:] $when",
    "new alarm $for",
    "another alarm $at",
    "up $at",
    "getting up $at[, set the alarm|, alarm on]",
    "I [need|have|want] to [get up|wake up|be up|be awake|be out of bed] $at",
    "I['ve got| got] to [get up|wake up|be up] $at",
    "I [need|have] to [get up|be up|be awake|be out of bed] $by",
    "I must [get up|be up] $at",
    "I must be awake $by",
    "I need an alarm [$for|$at]$p",
    "I need [the|my] alarm [set |]$for",
    "I need the alarm to [ring|go off] $at",
    "I want an alarm [$for|$at]",
    "I want [the|my] alarm to [ring|go off] $at",
    "I want to be woken [up|] $at",
    "I want you to wake me [up|] $at",
    "I need you to wake me [up|] $at",
    "I need you to get me up $at",
    "I['d| would] like to [get up|wake up|be woken|be woken up] $at",
    "I['d| would] like an alarm [$for|$at]",
    "I['d| would] like my alarm $for",
    "I'd like to be up $by",
    "I'd like a wake-up call $at",
    "I'd like $an",
    "I need $an",
    "I want $an",
    "I could use an alarm $at",
    "I'd like to sleep until $until, wake me then",
    "I'm sleeping until $until, set the alarm",
    "I [can't|mustn't|shouldn't] sleep [past|later than|longer than] $until",
    "I [can't|mustn't] oversleep, alarm $at",
    "I'm [going to bed|off to bed|turning in|heading to bed] now, wake me $at",
    "I'm [going to bed|off to bed|turning in], alarm $for",
    "I'm tired, wake me $at",
    "I have an early [meeting|flight|train|start|class|shift|appointment], [wake me|set an alarm|get me up] $at",
    "I've got an early [meeting|flight|train|start|class|shift|appointment], [wake me|set an alarm|get me up] $at",
    "I have a [flight|train|bus] to catch, [wake me|set an alarm|get me up] $at",
    "I [always oversleep|keep oversleeping], set an alarm $for",
    "ok so I have to get up $at",
    "ok, bedtime, wake me up $at",
    "alright, alarm $for",
    "right, set the alarm, $when",
    "so my alarm should be $at",
    "my alarm should [ring|go off|be set] $at",
    "the alarm should [ring|go off|be set|sound] $at",
    "the alarm needs to [ring|go off|be] $at",
    "my shift starts early, wake me $at",
    "big day ahead, alarm $for",
    "let's [set|have|make|do] an alarm $for",
    "let's get up $at",
    "let's wake up $at",
    "let's say the alarm goes off $at",
    "we [need|have|want] to get up $at",
    "we have to be up $by",
    "we need an alarm $for",
    "the kids [need|have] to get up $at",
    "the kids have to be up $by",
    "an alarm $at would be [great|nice|good|perfect]",
    "an alarm $for would be [great|nice|good]",
    "it'd be great if you woke me $at",
    "it would be good to get up $at, set the alarm",
    "time to sleep, alarm $at",
    "don't forget to wake me $at",
    "no sleeping in, wake me $at",
    "don't let me sleep past $until",
    "don't let me sleep [longer|later] than $until",
    "don't let me oversleep, wake me $at",
    "up and out of bed $at, that's the plan, set the alarm",
    "my alarm, $when",
    "$when is when I need to [get up|be up|wake up]",
    "$when is when I want to [get up|wake up]",
    "$when, that's when I have to get up",
]
SET_QUESTION = [
    "would you mind waking me [up|] $at",
    "would you mind setting [an|the|my] alarm $for",
    "do you mind waking me $at",
    "mind [waking me|getting me up|setting an alarm] $at",
    "can I [get|have] an alarm [$for|$at]",
    "could I [get|have] an alarm [$for|$at]",
    "can I [get|have] $an",
    "could I [get|have] a wake-up call $at",
    "may I have an alarm $at",
    "can you wake me [up|] $at",
    "could you get me up $at",
    "could you see that I'm up $by",
    "would you wake me [up|] $at",
    "will you wake me [up|] $at",
    "would you be so kind as to wake me $at",
    "is it possible to be woken $at",
    "could we [get up|have an alarm] $at",
    "can we set the alarm $for",
    "can you make sure I'm [up|awake] $by",
    "can you have me up $by",
    "could you make sure I don't sleep past $until",
    "how about an alarm $for",
    "can the alarm go off $at",
    "are you able to wake me $at",
]
TWO = [
    ("command", "[set|create|add|make] alarms for $c and $d"),
    ("command", "[set|create|add] two alarms, $c and $d"),
    ("command", "[set|create|add] two alarms, one for $c and one for $d"),
    ("command", "[set|create|add] an alarm for $c and [another|another one|one|a second one] for $d"),
    ("command", "wake me at $c and [again at|at] $d"),
    ("command", "wake me at $c and then again at $d"),
    ("statement", "alarms at $c and $d"),
    ("statement", "two alarms, $c and $d"),
    ("statement", "I need alarms at $c and $d"),
    ("statement", "I want one alarm at $c and one at $d"),
    ("question", "can I have alarms at $c and $d"),
    ("question", "would you mind setting alarms for $c and $d"),
]
SET_REPLIES = [
    "Alarm set for $t.", "The alarm is set for $t.", "I'll wake you at $t.", "OK, $t.", "Your alarm will ring at $t.", "Done, alarm at $t.",
    "All right, I'll wake you at $t.", "Sure, the alarm is on for $t.", "You'll hear the alarm at $t.", "Alarm on: $t.", "Got it, $t.",
]  # fmt: skip
SET_ERRORS = ["too many alarms", "alarm clock not available", "clock not set", "speaker offline", "no free alarm", "alarm service is down"]


def at_time(arguments):
    """ "07:30 on Friday" for a reply."""
    day = arguments.get("day")
    tail = f"on {day.capitalize()}" if day in WEEKDAYS else f"on {day}" if day in ("weekdays", "weekends") else day or ""
    return f"{arguments.get('time', '')} {tail}".strip()


def failed(rng, errors):
    """A result that is an error, and the reply to it."""
    error = one_of(rng, errors)
    openings = ["Sorry, that didn't work: $e.", "That failed: $e.", "I couldn't do that: $e.", "Sorry: $e.", "It didn't work, $e.", "No luck: $e."]
    return {"error": error}, one_of(rng, openings).replace("$e", error)


def finished(text):
    """No full stop of "a.m." at the very end."""
    return text[:-4] + "m}" if text.endswith(".m.}") else text


def set_answered(rng, text, form, arguments):
    if chance(rng, 0.025):
        result, reply = failed(rng, SET_ERRORS)
    else:
        result, reply = {"ok": True}, expand(rng, one_of(rng, SET_REPLIES), t=at_time(arguments))
    return Request(finished(text), form, [("set_alarm", arguments)], [result], reply)


def two_alarms(rng):
    form, pattern = one_of(rng, TWO)
    make = one_of(rng, [bare_clock, bare_clock, marked_clock])
    c, first = make(rng)
    d, second = make(rng)
    while second == first:
        d, second = make(rng)
    reply = one_of(rng, ["Two alarms: ", "Alarms set for ", "OK, ", "Done, alarms at "]) + f"{first} and {second}."
    calls = [("set_alarm", {"time": first}), ("set_alarm", {"time": second})]
    return Request(finished(expand(rng, pattern, c=c, d=d)), form, calls, [{"ok": True}, {"ok": True}], reply)


def set_alarm(rng):
    if chance(rng, 0.03):
        return two_alarms(rng)
    values, arguments = moment(rng)
    form, patterns = one_of(rng, [("command", SET)] * 5 + [("statement", SET_STATEMENT)] * 4 + [("question", SET_QUESTION)] * 2)
    pattern = one_of(rng, patterns).replace("$p", PURPOSE)
    text = expand(rng, pattern, an=with_article(values["alarm"]), **values)
    return set_answered(rng, text, form, arguments)


# $x is the alarm: "alarm", "alarm for {friday}", "{7 am} alarm tomorrow"
CANCEL = [
    "[cancel|stop|delete|remove|clear|kill|drop|scrap|scratch|disable|deactivate|dismiss|unset|erase] [the|my|that] $x",
    "[turn off|switch off|shut off|get rid of|call off] [the|my|that] $x",
    "[forget|ditch|nix|undo|axe|lose] [the|my] $x",
    "turn [the|my] $x off",
    "switch [the|my] $x off",
    "shut [the|my] $x off",
    "call [the|my] $x off",
    "take [the|my] $x off",
    "make sure [the|my] $x is off",
    "make sure [the|my] $x doesn't [ring|go off]",
    "keep [the|my] $x from ringing",
    "take out [the|my] $x",
    "wipe [the|my] $x",
    "remove [the|my] $x from the list",
]
CANCEL_STATEMENT = [
    "$x off",
    "[the|my] $x off",
    "no, $x off",
    "never mind [the|my] $x",
    "don't let [the|my] $x ring",
    "cancel [the|my] $x, I'm [up|awake] already",
    "I don't need [the|my|that] $x [any more|anymore|after all|any longer|]",
    "I no longer need [the|my|that] $x",
    "I won't need [the|my|that] $x",
    "we don't need [the|our|that] $x [any more|anymore|after all]",
    "no need for [the|my] $x [any more|anymore|]",
    "there's no need for [the|my] $x",
    "I want [the|my|that] $x [off|gone|cancelled|canceled|deleted]",
    "I need [the|my|that] $x [off|gone|cancelled|turned off|deleted]",
    "I'd like [the|my|that] $x [off|gone|cancelled|canceled|deleted]",
    "I'd like to [cancel|delete|turn off|remove] [the|my] $x",
    "I want to [cancel|delete|turn off|remove] [the|my] $x",
    "[the|my] $x can [go|be deleted|be cancelled]",
    "[the|my] $x [is no longer needed|isn't needed|should be deleted|should be off]",
    "never mind about [the|my] $x",
    "I've changed my mind about [the|my] $x, cancel it",
    "I'm [awake|up] already, [cancel|turn off|kill] [the|my] $x",
    "let's [cancel|drop|delete|lose] [the|my] $x",
    "ok you can [cancel|delete|turn off] [the|my] $x",
    "that $x was a mistake, [cancel|delete] it",
]
CANCEL_QUESTION = [
    "would you mind [cancelling|canceling|deleting|turning off|removing|killing] [the|my] $x",
    "do you mind [cancelling|turning off|deleting] [the|my] $x",
    "mind [cancelling|turning off|deleting|killing] [the|my] $x",
    "can we [cancel|drop|lose|skip] [the|my] $x",
    "can I [cancel|delete] [the|my] $x",
    "could we [cancel|drop|skip] [the|my] $x",
    "would you [cancel|delete|turn off] [the|my] $x",
    "will you turn off [the|my] $x",
    "can you get rid of [the|my] $x",
    "would you be so kind as to cancel [the|my] $x",
    "is it possible to cancel [the|my] $x",
    "how about cancelling [the|my] $x",
    "can [the|my] $x be [cancelled|deleted|turned off]",
]
CANCEL_ALL = [
    ("command", "[cancel|delete|clear|remove|turn off|kill|stop|disable] [all|all the|all my|all of my|every one of my|all of the] alarms"),
    ("command", "[cancel|delete|clear|remove|turn off|kill|stop|disable] [my|the] alarms"),
    ("command", "[cancel|delete|clear|remove|kill|stop] [every alarm|each alarm|every single alarm]"),
    ("command", "wipe all alarms"),
    ("statement", "all alarms off"),
    ("statement", "no more alarms"),
    ("statement", "I don't [need|want] any alarms [any more|anymore|]"),
    ("statement", "I want all [my|the] alarms [off|gone|deleted]"),
    ("question", "can you get rid of all my alarms"),
    ("question", "would you mind deleting all the alarms"),
    ("command", "stop the alarm[| clock| now| right now| already]"),
    ("command", "[turn|switch|shut] the alarm [clock|] off"),
    ("command", "shut up the alarm"),
    ("command", "silence the alarm"),
    ("command", "make the alarm stop"),
    ("statement", "alarm off"),
    ("statement", "I'm [up|awake], [alarm off|stop the alarm|turn the alarm off|cancel the alarm]"),
    ("statement", "ok ok, I'm up, alarm off"),
    ("statement", "don't wake me [up|] after all"),
]
CANCEL_DAY = [
    ("statement", "no alarm $on"),
    ("statement", "no alarms $on"),
    ("statement", "I don't [need|want] an alarm $on"),
    ("statement", "I don't [need|want] to be woken $on"),
    ("statement", "don't wake me [up|] $on"),
    ("statement", "don't ring $on"),
    ("statement", "alarm off $on"),
    ("statement", "alarm off for $bare"),
    ("command", "[cancel|delete|turn off|skip|kill] the alarm $on"),
    ("command", "[cancel|delete|turn off|skip|kill] the alarm for $bare"),
    ("command", "keep the alarm off $on"),
    ("command", "leave the alarm off $on"),
    ("question", "can we do without the alarm $on"),
    ("question", "could you not wake me $on"),
]
CANCEL_TIME = [
    ("statement", "don't wake me [up|] $at"),
    ("statement", "no alarm $at"),
    ("statement", "I don't need an alarm $at [any more|after all|]"),
    ("statement", "I don't [need|want|have] to get up $at [any more|after all], cancel the alarm"),
    ("statement", "I don't need to be woken $at [any more|after all|]"),
    ("statement", "I don't want to be woken $at [any more|after all|]"),
    ("command", "[cancel|delete|turn off|remove|kill|drop] the alarm [$for|$at]"),
    ("command", "[cancel|delete|turn off|remove|kill|drop] the alarm that's set $for"),
    ("command", "[cancel|delete|turn off|remove] the alarm I set $for"),
    ("command", "[cancel|delete|turn off|remove] the $alarm"),
    ("command", "[cancel|delete|turn off|remove] alarm $when"),
    ("command", "forget the alarm $at"),
    ("statement", "alarm $at off"),
    ("statement", "the alarm $at isn't needed"),
    ("question", "could you not wake me $at after all"),
    ("question", "would you cancel the alarm $for"),
]
CANCEL_REPLIES = ["The alarm is off.", "Alarm cancelled.", "Alarm canceled.", "Done, no alarm.", "OK, the alarm is gone.", "I've deleted the alarm."]
CANCEL_ALL_REPLIES = ["All alarms are off.", "The alarm is off.", "No more alarms.", "Done, alarm off.", "OK, I've cleared the alarms."]
CANCEL_TIME_REPLIES = [
    "The alarm at $t is off.", "Alarm at $t cancelled.", "Done, no alarm at $t.", "OK, I've deleted the alarm at $t.", "No alarm at $t any more.",
    "The alarm set for $t is gone.", "I won't wake you at $t.",
]  # fmt: skip
CANCEL_DAY_REPLIES = ["No alarm $t.", "The alarm is off $t.", "OK, no alarm $t.", "I won't wake you $t.", "Done, no alarm $t."]
CANCEL_ERRORS = ["no such alarm", "no alarm set", "alarm not found", "there is no alarm at that time", "speaker offline", "alarm clock not available"]


def cancel_answered(rng, text, form, arguments):
    if chance(rng, 0.025):
        result, reply = failed(rng, CANCEL_ERRORS)
    else:
        replies = CANCEL_TIME_REPLIES if "time" in arguments else CANCEL_DAY_REPLIES if arguments else CANCEL_ALL_REPLIES
        replies = CANCEL_REPLIES if arguments == {"day": "every day"} else replies
        result, reply = {"ok": True}, expand(rng, one_of(rng, replies + CANCEL_REPLIES[1:3]), t=at_time(arguments))
    return Request(finished(text), form, [("cancel_alarm", arguments)], [result], reply)


def cancel_groups(rng):
    return one_of(rng, [("command", CANCEL)] * 5 + [("statement", CANCEL_STATEMENT)] * 4 + [("question", CANCEL_QUESTION)] * 2)


def day_alarm(rng, day):
    """Noun phrases of the alarm of a day: "alarm for tomorrow", "{friday} alarm"."""
    bare, on = day_words(rng, day, "")
    phrases = ["alarm for " + bare, "alarm " + on]
    if day in WEEKDAYS:
        phrases += [copied(cased(rng, day)) + " alarm"] * 2
    elif day in ("weekdays", "weekends"):
        phrases += [day[:-1] + " alarm"] * 3
    elif day == "every day":
        phrases = ["daily alarm", "everyday alarm", "every day alarm", "alarm that rings every day"]
    return one_of(rng, phrases)


def cancel_alarm(rng):
    dice = rng.random()
    if dice < 0.2:
        form, pattern = one_of(rng, CANCEL_ALL)
        return cancel_answered(rng, expand(rng, pattern), form, {})
    if dice < 0.33:
        form, patterns = cancel_groups(rng)
        return cancel_answered(rng, expand(rng, one_of(rng, patterns), x=one_of(rng, ["alarm", "alarm", "alarm clock", "wake-up alarm"])), form, {})
    if dice < 0.43:
        form, patterns = cancel_groups(rng)
        day = any_day(rng)
        return cancel_answered(rng, expand(rng, one_of(rng, patterns), x=day_alarm(rng, day)), form, {"day": day})
    if dice < 0.56:
        form, pattern = one_of(rng, CANCEL_DAY)
        day = any_day(rng)
        day = "tomorrow" if day == "every day" else day
        part = "night" if day == "today" and chance(rng, 0.5) else "morning" if day == "tomorrow" and chance(rng, 0.3) else ""
        bare, on = day_words(rng, day, part)
        return cancel_answered(rng, expand(rng, pattern, on=on, bare=bare), form, {"day": day})
    values, arguments = moment(rng, 0.35)
    if dice < 0.78:
        form, patterns = cancel_groups(rng)
        x = one_of(rng, [values["alarm"], "alarm " + values["for"], "alarm " + values["at"]])
        return cancel_answered(rng, expand(rng, one_of(rng, patterns), x=x), form, arguments)
    form, pattern = one_of(rng, CANCEL_TIME)
    return cancel_answered(rng, expand(rng, pattern, **values), form, arguments)


def sure_clock(rng, old):
    """A time for a follow-up: beyond doubt after an alarm at the old one."""
    if old < "12:00" and chance(rng, 0.7):
        hour, minute = rng.randint(5, 11), some_minute(rng)
        return clock(rng, hour, minute, ""), hhmm(hour, minute)
    if chance(rng, 0.3):
        text, hour, minute = clock_24(rng)
        if old < "12:00" or hour > 12:
            return text, hhmm(hour, minute)
    return marked_clock(rng)


MAKE_TIME = [
    ("command", "make [it|that] $c [instead|]"),
    ("command", "[change|move|shift|set|push|switch] [it|that] to $c [instead|]"),
    ("command", "change the time to $c"),
    ("command", "wake me at $c instead"),
    ("statement", "[no, |]actually[,|] $c"),
    ("statement", "no, $c"),
    ("statement", "no wait, $c"),
    ("statement", "no, make it $c"),
    ("statement", "sorry, $c"),
    ("statement", "sorry, I meant $c"),
    ("statement", "I meant $c"),
    ("statement", "I said $c"),
    ("statement", "rather $c"),
    ("statement", "better $c"),
    ("statement", "better make it $c"),
    ("statement", "$c instead"),
    ("statement", "let's make it $c"),
    ("statement", "let's say $c instead"),
    ("statement", "on second thought, $c"),
    ("statement", "not {$o}, $c"),
    ("statement", "oops, $c, not {$o}"),
    ("statement", "hmm, $c is better"),
    ("statement", "it should be $c"),
    ("statement", "that's too [early|late], make it $c"),
    ("question", "can you make that $c"),
    ("question", "could we make it $c instead"),
    ("question", "can you move it to $c"),
    ("question", "how about $c instead"),
]
MAKE_DAY = [
    ("command", "make [it|that] $d [instead|]"),
    ("command", "[change|move|switch] it to $d"),
    ("statement", "no, $d"),
    ("statement", "no, $n"),
    ("statement", "I meant $n"),
    ("statement", "sorry, $n"),
    ("statement", "sorry, I meant $n"),
    ("statement", "$n instead"),
    ("statement", "actually $n"),
    ("statement", "wait, make that $d"),
    ("statement", "no wait, $n"),
    ("statement", "I said $d"),
    ("question", "can you make it $d"),
    ("question", "could it be $n instead"),
]
ALSO_DAY = [
    ("statement", "and $n [too|as well|]"),
    ("statement", "and the same $n"),
    ("statement", "the same $n[| too]"),
    ("statement", "same [time |]$n"),
    ("statement", "also $n"),
    ("statement", "and also $n"),
    ("statement", "$n [too|as well]"),
    ("command", "do the same $n"),
    ("command", "set the same one $n"),
    ("command", "set one for the same time $n"),
    ("command", "wake me $n too"),
    ("command", "add one $n too, same time"),
    ("statement", "I need the same $n"),
    ("statement", "and again $n"),
    ("statement", "and one $n at the same time"),
    ("question", "can you do the same $n"),
    ("question", "could I have the same $n"),
    ("question", "what about the same $n"),
]
ALSO_TIME = [
    ("statement", "and another [one |]at $c"),
    ("statement", "and one [at|for] $c [too|as well|]"),
    ("statement", "and at $c [too|as well|]"),
    ("statement", "another one [at|for] $c"),
    ("statement", "also at $c"),
    ("statement", "plus one at $c"),
    ("statement", "and again at $c"),
    ("statement", "and a second one at $c"),
    ("statement", "and $c too"),
    ("statement", "I also need one at $c"),
    ("statement", "one more at $c"),
    ("command", "[set|add] another one [at|for] $c"),
    ("command", "add one at $c"),
    ("command", "wake me again at $c"),
    ("question", "can I have another one at $c"),
    ("question", "could you set one more for $c"),
    ("question", "and can you set one for $c as well"),
]
UNDO = [
    ("command", "[cancel|delete|drop|scrap|kill|remove] [it|that|it again|that one|that again]"),
    ("statement", "[no|actually], [cancel|forget|delete|scratch] [it|that]"),
    ("statement", "never mind, [cancel|delete] [it|that]"),
    ("statement", "changed my mind, [cancel|delete] it"),
    ("statement", "on second thought, cancel it"),
    ("command", "turn it off [again|]"),
    ("command", "switch it off again"),
    ("statement", "and off again"),
    ("statement", "I don't need it [any more|anymore|after all]"),
    ("statement", "wait, cancel that"),
    ("statement", "no, don't wake me after all, cancel it"),
    ("question", "can you cancel it again"),
    ("question", "could you delete that again"),
]


def after_set(rng, arguments):
    old, day = arguments["time"], arguments.get("day")
    dice = rng.random()
    if dice < 0.35:
        c, time = sure_clock(rng, old)
        form, pattern = one_of(rng, MAKE_TIME)
        new = {"time": time, "day": day} if day else {"time": time}
        return set_answered(rng, expand(rng, pattern, c=c, o=old), form, new) if time != old else None
    if dice < 0.7:
        new_day = any_day(rng)
        if new_day in ("today", day):
            return None
        bare, on = day_words(rng, new_day, "")
        form, pattern = one_of(rng, MAKE_DAY if dice < 0.5 or new_day == "every day" else ALSO_DAY)
        return set_answered(rng, expand(rng, pattern, d=bare, n=on), form, {"time": old, "day": new_day})
    if dice < 0.85:
        c, time = sure_clock(rng, old)
        form, pattern = one_of(rng, ALSO_TIME)
        return None if day or time == old else set_answered(rng, expand(rng, pattern, c=c), form, {"time": time})
    form, pattern = one_of(rng, UNDO)
    return cancel_answered(rng, expand(rng, pattern), form, dict(arguments))


ALSO_CANCEL = [
    ("statement", "and $x [too|as well|]"),
    ("statement", "$x [too|as well|also]"),
    ("statement", "also $x"),
    ("statement", "and also $x"),
    ("statement", "same for $x"),
    ("statement", "same with $x"),
    ("statement", "I don't need $x either"),
    ("statement", "$x can go too"),
    ("statement", "and then $x"),
    ("command", "[cancel|delete|turn off|remove|kill] $x [too|as well]"),
    ("command", "do the same with $x"),
    ("question", "and $x"),
    ("question", "what about cancelling $x too"),
    ("question", "can you [cancel|delete|turn off] $x [too|as well]"),
    ("question", "could you also [cancel|delete] $x"),
]
NEW_ONE = [
    ("command", "[set|make|add|create] [a new one|another one|one] [for|at] $c [instead|]"),
    ("command", "wake me at $c instead"),
    ("statement", "and set [a new one|one] for $c [instead|]"),
    ("statement", "now [set |]one for $c"),
    ("statement", "I need a new one at $c"),
    ("statement", "and a new one for $c"),
    ("question", "can I have a new one at $c"),
    ("question", "could you set one for $c instead"),
]


def after_cancel(rng, arguments):
    if len(arguments) == 2:
        new_day = any_day(rng)
        if new_day in ("today", "every day", arguments["day"]):
            return None
        form, pattern = one_of(rng, ALSO_CANCEL)
        bare, on = day_words(rng, new_day, "")
        return cancel_answered(rng, expand(rng, pattern, x="the one at the same time " + on), form, {"time": arguments["time"], "day": new_day})
    if "day" in arguments:
        new_day = any_day(rng)
        if new_day in ("every day", arguments["day"]):
            return None
        bare, on = day_words(rng, new_day, "")
        form, pattern = one_of(rng, ALSO_CANCEL)
        return cancel_answered(rng, expand(rng, pattern, x=one_of(rng, ["the one " + on, "the one for " + bare])), form, {"day": new_day})
    c, time = sure_clock(rng, arguments.get("time", "08:00"))
    if time == arguments.get("time"):
        return None
    if arguments and chance(rng, 0.7):
        form, pattern = one_of(rng, ALSO_CANCEL)
        x = one_of(rng, [f"the {hourly(c)} one", f"the one at {c}", f"the one for {c}"])
        return cancel_answered(rng, expand(rng, pattern, x=x), form, {"time": time})
    form, pattern = one_of(rng, NEW_ONE)
    return set_answered(rng, expand(rng, pattern, c=c), form, {"time": time})


HERE = [
    ("question", "what time is it [|now|right now|exactly|at the moment|currently|already|here|by now]"),
    ("question", "what's the time [|now|right now|exactly|at the moment|here]"),
    ("question", "what is the [time|current time|exact time|time of day|local time] [|now|here]"),
    ("question", "what's the [current|exact|local|correct|right] time"),
    ("question", "what time [do we have|have we got|do you have|have you got|have you|does the clock say|does your clock show|is it getting to be]"),
    ("question", "what time's it"),
    ("question", "what hour is it"),
    ("question", "what does the clock say"),
    ("question", "what does your clock say"),
    ("question", "how late is it [|now|already]"),
    ("question", "got the time"),
    ("question", "have you got the time"),
    ("question", "do you have the time"),
    ("question", "do you know [what time it is|the time|how late it is]"),
    ("question", "do you happen to know [the time|what time it is]"),
    ("question", "any idea what time it is"),
    ("question", "can you tell me [the time|what time it is|how late it is]"),
    ("question", "could you tell me [the time|what time it is|how late it is]"),
    ("question", "would you tell me [the time|what time it is]"),
    ("question", "would you mind telling me [the time|what time it is]"),
    ("question", "may I ask [the time|what time it is]"),
    ("question", "may I know the time"),
    ("question", "can I [get|have] the time"),
    ("question", "could I [get|have] the time"),
    ("question", "mind telling me the time"),
    ("question", "is it [noon|midnight|six|seven|eight|nine|ten|five|lunchtime|bedtime] [yet|already]"),
    ("question", "is it [past|after|before] [noon|midnight|six|seven|eight|nine|ten|five] [|yet|already]"),
    ("question", "what was the time again"),
    ("question", "what time is it again"),
    ("question", "so what time is it"),
    ("question", "ok what time is it"),
    ("question", "how are we doing for time"),
    ("question", "wait, what time is it"),
    ("question", "oh, what time is it already"),
    ("question", "what time would it be [now|right now]"),
    ("question", "what's it say on the clock"),
    ("question", "what's the hour"),
    ("question", "the time"),
    ("question", "time"),
    ("question", "time now"),
    ("command", "tell me the [time|current time|exact time|time of day] [|now|right now]"),
    ("command", "tell me what time it is [|now|right now]"),
    ("command", "tell me how late it is"),
    ("command", "give me the [time|current time|exact time]"),
    ("command", "say the time"),
    ("command", "say what time it is"),
    ("command", "show me the [time|current time|clock]"),
    ("command", "show the time"),
    ("command", "read [me|] the [clock|time]"),
    ("command", "check the [time|clock]"),
    ("command", "check the [time|clock] for me"),
    ("command", "check what time it is"),
    ("command", "let me know [the time|what time it is]"),
    ("command", "look at the clock for me"),
    ("command", "announce the time"),
    ("command", "remind me what time it is"),
    ("statement", "time"),
    ("statement", "time [check|now|right now]"),
    ("statement", "the time"),
    ("statement", "the current time"),
    ("statement", "current time"),
    ("statement", "what time is it I wonder"),
    ("statement", "I [need|want] to know [the time|what time it is|how late it is]"),
    ("statement", "I['d| would] like to know [the time|what time it is]"),
    ("statement", "I wonder [what time it is|how late it is]"),
    ("statement", "I need the [time|exact time]"),
    ("statement", "I [can't see|can't find|don't see] [the|a] clock, what time is it"),
    ("statement", "I've lost track of time, what time is it"),
    ("statement", "I don't know what time it is"),
    ("statement", "I have no idea [what time it is|how late it is]"),
    ("statement", "my watch [stopped|is broken|has stopped], what time is it"),
    ("statement", "I don't want to be late, what time is it"),
    ("statement", "just tell me the time"),
    ("statement", "no clock in here, what's the time"),
]
THERE = [
    ("question", "what time is it [|now|right now|currently|at the moment] in $x"),
    ("question", "what time is it in $x [|now|right now|currently|at the moment|just now]"),
    ("question", "what time is it [over|over there|out|down|up|back] in $x"),
    ("question", "what time is it for [my sister|my brother|my mom|my mum|my parents|my son|our friends|grandma|the team] in $x"),
    ("question", "what's the time [|now|right now|over|back|down] in $x"),
    ("question", "what's the [local|current|exact] time in $x"),
    ("question", "what is the [time|local time|current time|exact time] in $x [|now|right now]"),
    ("question", "what's the time like in $x"),
    ("question", "what time [do they have|have they got|do people have] in $x"),
    ("question", "what time would it be in $x [|now|right now]"),
    ("question", "what hour is it in $x"),
    ("question", "what does the clock say in $x"),
    ("question", "what do the clocks say in $x"),
    ("question", "how late is it [|now|already] in $x"),
    ("question", "how late is it in $x [|now|already]"),
    ("question", "in $x, what time is it [|now|right now]"),
    ("question", "$x, what time is it there"),
    ("question", "$x, what's the time there"),
    ("question", "do you know [what time it is|the time|how late it is] in $x"),
    ("question", "do you happen to know the time in $x"),
    ("question", "any idea what time it is in $x"),
    ("question", "can you tell me [the time|what time it is|how late it is] in $x"),
    ("question", "could you tell me [the time|what time it is|the local time] in $x"),
    ("question", "would you tell me the time in $x"),
    ("question", "would you mind telling me [the time|what time it is] in $x"),
    ("question", "can I [get|have] the [time|local time] in $x"),
    ("question", "could I have the time in $x"),
    ("question", "may I ask what time it is in $x"),
    ("question", "mind checking the time in $x"),
    ("question", "is it [morning|evening|night|afternoon|daytime|midnight|noon] in $x [|now|right now|yet|already]"),
    ("question", "is it still [morning|evening|night|afternoon|early|daytime] in $x"),
    ("question", "is it [already|] [late|early] in $x [|now|right now]"),
    ("question", "is it the middle of the night in $x"),
    ("question", "what's the [hour|clock] in $x"),
    ("question", "my [sister|brother|friend|mother|boss|cousin|daughter|son] lives in $x, what time is it there"),
    ("question", "what time is it where [my sister|my brother|my friend|my cousin] lives, in $x"),
    ("question", "so what time is it in $x"),
    ("question", "ok and what time is it in $x"),
    ("question", "the time in $x"),
    ("question", "time in $x"),
    ("question", "what's $x time"),
    ("question", "what time is it $x time"),
    ("question", "what time's it in $x"),
    ("command", "tell me the [time|current time|local time] in $x"),
    ("command", "tell me what time it is [|now|right now] in $x"),
    ("command", "tell me how late it is in $x"),
    ("command", "give me the [time|current time|local time] in $x"),
    ("command", "give me the time for $x"),
    ("command", "show me the [time|clock|local time] in $x"),
    ("command", "say the time in $x"),
    ("command", "check the [time|clock|local time] in $x"),
    ("command", "check what time it is in $x"),
    ("command", "look up the [time|local time|current time] in $x"),
    ("command", "find out [the time|what time it is] in $x"),
    ("command", "let me know [the time|what time it is] in $x"),
    ("command", "get me the [time|local time] in $x"),
    ("command", "read me the clock in $x"),
    ("statement", "time in $x"),
    ("statement", "time $x"),
    ("statement", "$x time"),
    ("statement", "$x, time"),
    ("statement", "local time [in|for|] $x"),
    ("statement", "$x local time"),
    ("statement", "current time in $x"),
    ("statement", "current time $x"),
    ("statement", "clock in $x"),
    ("statement", "time right now in $x"),
    ("statement", "the time over in $x"),
    ("statement", "I [need|want] to know [the time|what time it is] in $x"),
    ("statement", "I['d| would] like to know [the time|what time it is|how late it is] in $x"),
    ("statement", "I wonder [what time it is|how late it is] in $x"),
    ("statement", "I need the [time|local time] in $x"),
    ("statement", "I have no idea what time it is in $x"),
    ("statement", "I want to [call|ring|phone|text] [my sister|my brother|my mom|my friend|someone|a colleague] in $x, what time is it there"),
    ("statement", "I have a call with someone in $x, what time is it there"),
    ("statement", "my [flight|train] lands in $x, what's the time there"),
    ("statement", "I'm flying to $x, what time is it there"),
    ("statement", "before I call $x, what time is it there"),
]
TIME_REPLIES = ["It's $t.", "It is $t.", "The time is $t.", "It's $t now.", "$t.", "Right now it's $t.", "The clock says $t."]
TIME_THERE_REPLIES = [
    "It's $t in $x.", "In $x it's $t.", "The time in $x is $t.", "It's $t now in $x.", "It is $t in $x right now.", "$t in $x.",
    "Over in $x it's $t.", "The local time in $x is $t.",
]  # fmt: skip
TIME_ERRORS = ["clock not available", "no connection", "time service is down", "clock not set", "no network"]
PLACE_ERRORS = ["unknown place", "place not found", "no connection", "time service is down", "I don't know that place", "no such place"]


def time_answered(rng, text, form, x, place):
    """x is the place as it is said, with its article and braces."""
    if chance(rng, 0.025):
        result, reply = failed(rng, PLACE_ERRORS if place else TIME_ERRORS)
    else:
        time = hhmm(rng.randint(0, 23), rng.randint(0, 59))
        result = {"time": time}
        reply = expand(rng, one_of(rng, TIME_THERE_REPLIES if place else TIME_REPLIES), t=time, x=x.replace("{", "").replace("}", ""))
    return Request(text, form, [("get_time", {"place": place} if place else {})], [result], reply)


def get_time(rng):
    if chance(rng, 0.35):
        form, pattern = one_of(rng, HERE)
        return time_answered(rng, expand(rng, pattern), form, "", None)
    x, place = mentioned(rng)
    form, pattern = one_of(rng, THERE)
    return time_answered(rng, expand(rng, pattern, x=x), form, x, place)


AND_THERE = [
    ("question", "and in $x"),
    ("question", "and [over|down|up|back|out] in $x"),
    ("question", "and in $x [|now|right now|then]"),
    ("question", "what about [in|] $x"),
    ("question", "how about [in|] $x"),
    ("question", "and what about $x"),
    ("question", "and how about $x"),
    ("question", "and what time is it in $x"),
    ("question", "and what is it in $x"),
    ("question", "and $x"),
    ("question", "$x"),
    ("question", "in $x"),
    ("question", "how late is it then in $x"),
    ("question", "and at the same moment in $x"),
    ("question", "what is it in $x then"),
    ("question", "and for $x"),
    ("question", "ok, and in $x"),
    ("question", "so what is it in $x"),
    ("question", "can you check $x too"),
    ("question", "could you check $x as well"),
    ("question", "what's that in $x"),
    ("statement", "and now $x"),
    ("statement", "same for $x"),
    ("statement", "the same for $x"),
    ("statement", "$x too"),
    ("statement", "also $x"),
    ("statement", "now $x"),
    ("statement", "now in $x"),
    ("statement", "no, in $x"),
    ("statement", "no, I meant $x"),
    ("statement", "I meant in $x"),
    ("statement", "sorry, I meant $x"),
    ("statement", "not there, in $x"),
    ("command", "check $x too"),
    ("command", "tell me $x too"),
    ("command", "do $x as well"),
]
AND_HERE = [
    "and here", "and what time is it here", "and what about here", "how about here", "and at home", "and the time here", "what is it here",
    "and here at home", "and what's the time here", "and for us", "and here where I am", "and what is it here then",
]  # fmt: skip
AND_DATE = [
    "and the date", "and what day is it", "and what's the date", "and the day", "and today's date", "what day is it", "and which day is it today",
    "and what day of the week is it", "and what date is it", "and what is today's date",
]  # fmt: skip
AND_CLOCK = [
    "and the time", "and what time is it", "and what's the time", "what about the time", "and the clock", "and how late is it", "and the time of day",
    "what time is it", "and the exact time", "and the time right now", "ok and what time is it", "and what's the time now",
]  # fmt: skip


def after_time(rng, arguments):
    dice = rng.random()
    if dice < 0.7:
        x, place = mentioned(rng)
        if place == arguments.get("place"):
            return None
        form, pattern = one_of(rng, AND_THERE if arguments else AND_THERE[:19])
        return time_answered(rng, expand(rng, pattern, x=x), form, x, place)
    if dice < 0.85:
        return time_answered(rng, one_of(rng, AND_HERE), "question", "", None) if arguments else None
    return None if arguments else date_answered(rng, one_of(rng, AND_DATE), "question")


DATE = [
    ("question", "what day is it [|today|now|again|exactly|already]"),
    ("question", "what day is today"),
    ("question", "what day of the week is it [|today]"),
    ("question", "what day of the month is it [|today]"),
    ("question", "what weekday is it [|today]"),
    ("question", "what's the date [|today|now|again|right now]"),
    ("question", "what is the date [|today|now]"),
    ("question", "what's today's date"),
    ("question", "what is today's date"),
    ("question", "what date is it [|today|now|again]"),
    ("question", "what date is today"),
    ("question", "what date do we have [|today]"),
    ("question", "what date have we got [|today]"),
    ("question", "what's [the current|the exact|today's full] date"),
    ("question", "what's today"),
    ("question", "what is today"),
    ("question", "what's the day [|today|of the week]"),
    ("question", "which day is it [|today]"),
    ("question", "which day of the week is it [|today]"),
    ("question", "which date is it [|today]"),
    ("question", "which weekday is it"),
    ("question", "what month is it [|now]"),
    ("question", "which month is it [|now]"),
    ("question", "what month are we in"),
    ("question", "which month are we in"),
    ("question", "what day are we on"),
    ("question", "what day have we got today"),
    ("question", "what day do we have today"),
    ("question", "is it {$w} [|today|already|yet]"),
    ("question", "is today {$w}"),
    ("question", "is today {$w} or {$v}"),
    ("question", "isn't it {$w} today"),
    ("question", "is it already {$w}"),
    ("question", "is it {$w} or {$v} today"),
    ("question", "is it the [first|second|third|fifth|tenth|twelfth|fifteenth|twentieth|thirtieth] [|today|already]"),
    ("question", "is it [January|February|March|April|May|June|July|August|September|October|November|December] [already|yet]"),
    ("question", "is it still [January|February|March|April|May|June|July|August|September|October|November|December]"),
    ("question", "do you know [what day it is|the date|what date it is|today's date|what day today is]"),
    ("question", "do you happen to know the date"),
    ("question", "any idea what [day|date] it is"),
    ("question", "can you tell me [the date|today's date|what day it is|what date it is]"),
    ("question", "could you tell me [the date|today's date|what day it is|what date it is]"),
    ("question", "would you mind telling me [the date|what day it is|today's date]"),
    ("question", "can I have [the|today's] date"),
    ("question", "could I get [the|today's] date"),
    ("question", "may I ask what day it is"),
    ("question", "how far are we into the month"),
    ("question", "what does the calendar say [|today]"),
    ("question", "so what day is it"),
    ("question", "wait, what day is it"),
    ("question", "ok what's the date"),
    ("question", "today's date"),
    ("question", "the date"),
    ("command", "tell me [the date|today's date|what day it is|what date it is|what day today is]"),
    ("command", "tell me [the day of the week|which day it is|the day]"),
    ("command", "give me [the date|today's date|the current date]"),
    ("command", "say [the date|today's date|what day it is]"),
    ("command", "show me [the date|today's date|the calendar day]"),
    ("command", "check [the date|today's date|what day it is|the calendar for today's date]"),
    ("command", "let me know [the date|what day it is|today's date]"),
    ("command", "remind me what day it is"),
    ("command", "remind me of the date"),
    ("command", "read me the date"),
    ("command", "look up today's date"),
    ("statement", "date"),
    ("statement", "the date"),
    ("statement", "today's date"),
    ("statement", "date today"),
    ("statement", "current date"),
    ("statement", "the current date"),
    ("statement", "day of the week"),
    ("statement", "date and day"),
    ("statement", "I [need|want] to know [the date|what day it is|today's date|what date it is]"),
    ("statement", "I['d| would] like to know [the date|what day it is|today's date]"),
    ("statement", "I need [the|today's] date"),
    ("statement", "I wonder what [day|date] it is"),
    ("statement", "I [forgot|always forget|keep forgetting] what day it is"),
    ("statement", "I've lost track of the days, what day is it"),
    ("statement", "I have no idea what [day|date] it is"),
    ("statement", "I don't even know what day it is"),
    ("statement", "I have to [sign|date] [a form|a letter|this], what's the date"),
    ("statement", "I'm filling in a form, what's today's date"),
    ("statement", "I'm confused, what day is it today"),
    ("statement", "just tell me what day it is"),
    ("statement", "I'm writing a [letter|check|cheque], what's the date today"),
]
DATE_REPLIES = ["It's $d.", "Today is $d.", "It is $d.", "Today's date is $d.", "$d.", "It's $d today.", "We have $d.", "The date is $d."]
DATE_ERRORS = ["calendar not available", "clock not set", "no connection", "date unknown", "calendar offline"]
MONTHS = [("January", 31), ("February", 29), ("March", 31), ("April", 30), ("May", 31), ("June", 30), ("July", 31), ("August", 31), ("September", 30),
          ("October", 31), ("November", 30), ("December", 31)]  # fmt: skip


def date_answered(rng, text, form):
    if chance(rng, 0.025):
        result, reply = failed(rng, DATE_ERRORS)
    else:
        month, length = one_of(rng, MONTHS)
        date = f"{one_of(rng, WEEKDAYS).capitalize()}, {rng.randint(1, length)} {month}"
        result, reply = {"date": date}, expand(rng, one_of(rng, DATE_REPLIES), d=date)
    return Request(text, form, [("get_date", {})], [result], reply)


def get_date(rng):
    form, pattern = one_of(rng, DATE)
    first = rng.randint(0, 6)
    w, v = WEEKDAYS[first], WEEKDAYS[(first + rng.randint(1, 6)) % 7]
    return date_answered(rng, expand(rng, pattern, w=cased(rng, w), v=cased(rng, v)), form)


def after_date(rng, arguments):
    return time_answered(rng, one_of(rng, AND_CLOCK), "question", "", None)


REQUESTS = {"set_alarm": (1.0, set_alarm), "cancel_alarm": (0.5, cancel_alarm), "get_time": (0.6, get_time), "get_date": (0.25, get_date)}
FOLLOWS = {"set_alarm": after_set, "cancel_alarm": after_cancel, "get_time": after_time, "get_date": after_date}
