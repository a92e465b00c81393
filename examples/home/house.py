#!/usr/bin/env python3
"""A simulated house: `atta chat --tools tools.json --tool-cmd ./house.py --yes`.

One call is one run: the tool's name is the argument, its arguments come as JSON on standard input, what it did or found
is printed as JSON. The state is a file of JSON (HOUSE_STATE, else house.json in the directory for temporary files), so
that what was switched on stays on. `house.py state` shows it. The weather is made up.
"""

import ast
import json
import operator
import os
import sys
import tempfile
import time
import zlib
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

STATE = Path(os.environ.get("HOUSE_STATE") or Path(tempfile.gettempdir()) / "house.json")
SKIES = ["sunny", "cloudy", "light rain", "heavy rain", "fog", "snow", "clear", "windy"]
# Each unit: what it measures, and how many of the smallest one it is.
UNITS = {
    "kilometers": ("length", 1000), "meters": ("length", 1), "centimeters": ("length", 0.01), "miles": ("length", 1609.344),
    "yards": ("length", 0.9144), "feet": ("length", 0.3048), "inches": ("length", 0.0254),
    "kilograms": ("mass", 1000), "grams": ("mass", 1), "pounds": ("mass", 453.59237), "ounces": ("mass", 28.349523125),
    "liters": ("volume", 1000), "milliliters": ("volume", 1), "gallons": ("volume", 3785.411784), "pints": ("volume", 473.176473),
    "cups": ("volume", 236.5882365), "tablespoons": ("volume", 14.78676478125), "teaspoons": ("volume", 4.92892159375),
    "seconds": ("time", 1), "minutes": ("time", 60), "hours": ("time", 3600), "days": ("time", 86400), "weeks": ("time", 604800),
}  # fmt: skip
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.USub: operator.neg}


class Refused(Exception):
    """What cannot be done, in words."""


def rounded(value):
    value = round(value, 4)
    return int(value) if value == int(value) else value


def value_of(node):
    match node:
        case ast.Expression(body=body):
            return value_of(body)
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value_of(left), value_of(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand)
    raise Refused("that is no arithmetic")


def calculate(state, expression):
    try:
        return {"result": rounded(value_of(ast.parse(expression, mode="eval")))}
    except ZeroDivisionError:
        raise Refused("division by zero") from None
    except (SyntaxError, OverflowError, RecursionError, ValueError):
        raise Refused("that is no arithmetic") from None


def convert(state, value, **units):
    unit, to = units["from"], units["to"]
    if (unit, to) == ("celsius", "fahrenheit"):
        return {"result": rounded(value * 9 / 5 + 32)}
    if (unit, to) == ("fahrenheit", "celsius"):
        return {"result": rounded((value - 32) * 5 / 9)}
    if unit not in UNITS or to not in UNITS or UNITS[unit][0] != UNITS[to][0]:
        raise Refused(f"no way from {unit} to {to}")
    return {"result": rounded(value * UNITS[unit][1] / UNITS[to][1])}


def set_light(state, room="here", **light):
    if not light:
        raise Refused("on, brightness or color is missing")
    lamp = state["lights"].setdefault(room, {"on": False})
    lamp.update({"on": light.get("brightness") != 0} | light)
    for other in state["lights"].values() if room == "all" else []:
        other.update(lamp)


def set_device(state, device, on, room=None):
    state["devices"][f"{device}, {room}" if room else device] = on


def set_blinds(state, position, room="here"):
    state["blinds"][room] = position


def set_temperature(state, degrees, room="here"):
    if not 5 <= degrees <= 90:
        raise Refused("the heating goes from 5 to 90 degrees")
    state["temperature"][room] = degrees


def set_timer(state, hours=0, minutes=0, seconds=0, label=""):
    length = hours * 3600 + minutes * 60 + seconds
    if length == 0:
        raise Refused("how long is missing")
    state["timers"][label] = int(time.time()) + length


def cancel_timer(state, label=None):
    timers = state["timers"]
    if not timers or (label is not None and label not in timers):
        raise Refused("there is no such timer")
    for name in list(timers) if label is None else [label]:
        del timers[name]


def set_alarm(state, time, day="next"):
    state["alarms"].append({"time": time, "day": day})


def cancel_alarm(state, time=None, day=None):
    fits = lambda alarm: (time is None or alarm["time"] == time) and (day is None or alarm["day"] == day)
    left = [alarm for alarm in state["alarms"] if not fits(alarm)]
    if len(left) == len(state["alarms"]):
        raise Refused("there is no such alarm")
    state["alarms"] = left


def get_weather(state, place="here", day="today"):
    chance = zlib.crc32(f"{place} {day} {datetime.now():%F}".encode())
    return {"sky": SKIES[chance % len(SKIES)], "temperature": chance // 8 % 30}


def get_time(state, place=None):
    if place is None:
        return {"time": f"{datetime.now():%H:%M}"}
    wanted = place.lower().replace(" ", "_")
    for zone in sorted(available_timezones()):
        if zone.lower().rsplit("/")[-1] == wanted:
            return {"time": f"{datetime.now(ZoneInfo(zone)):%H:%M}"}
    raise Refused(f"I do not know the time in {place}")


def get_date(state):
    now = datetime.now()
    return {"date": f"{now:%A}, {now.day} {now:%B}"}


def play_music(state, query="something", room="here"):
    state["music"] = {"playing": query, "room": room}


def control_music(state, action):
    if "playing" not in state["music"]:
        raise Refused("nothing is playing")
    state["music"]["last action"] = action
    if action == "stop":
        state["music"] = {}


def set_volume(state, level=None, change=None):
    step = {"up": 10, "down": -10}.get(change, 0)
    state["volume"] = max(0, min(100, state["volume"] + step if level is None else level))


def add_to_list(state, list, items):
    state["lists"].setdefault(list.lower(), []).extend(items)


def remove_from_list(state, list, items):
    there = state["lists"].get(list.lower(), [])
    for item in items:
        if item not in there:
            raise Refused(f"{item} is not on the {list} list")
        there.remove(item)


def show_list(state, list):
    return {"items": state["lists"].get(list.lower(), [])}


TOOLS = {
    f.__name__: f
    for f in (set_light, set_device, set_blinds, set_temperature, set_timer, cancel_timer, set_alarm, cancel_alarm, get_weather, get_time,
              get_date, play_music, control_music, set_volume, add_to_list, remove_from_list, show_list, calculate, convert)
}  # fmt: skip
EMPTY = {"lights": {}, "devices": {}, "blinds": {}, "temperature": {}, "timers": {}, "alarms": [], "music": {}, "volume": 30, "lists": {}}


def main():
    state = EMPTY | (json.loads(STATE.read_text()) if STATE.exists() else {})
    name = sys.argv[1] if len(sys.argv) == 2 else None
    if name == "state":
        print(json.dumps(state, indent=1, ensure_ascii=False))
        return
    if name not in TOOLS:
        sys.exit(f"usage: house.py TOOL < arguments.json, or house.py state; tools: {', '.join(TOOLS)}")
    try:
        result = TOOLS[name](state, **json.load(sys.stdin)) or {"ok": True}
        STATE.write_text(json.dumps(state))
    except Refused as reason:
        result = {"error": str(reason)}
    print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
