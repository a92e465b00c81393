"""Chat templates as Hugging Face transformers renders them -> tests/golden/chat/goldens.json

    VENV/bin/python tests/oracles/chat_templates.py tests/golden/chat ../shared/data/chat-templates

`VENV` needs transformers and jinja2, no torch. The templates of the second directory belong to those who published the
models: only what they make of our conversations is kept, and the test reads the templates where they are. Those in
`tests/golden/chat/templates` are ours.

In the result, `conversations` are what is rendered, `cases` what came of it: `template` (a file), `conversation` (a
name), and `text` or `raises`: the message of `raise_exception`, or null for any other error.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import transformers.utils.chat_template_utils as utils

NOW = datetime.datetime(2026, 3, 5, 14, 7, 9)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


utils.datetime = Clock

ODD_TOOL = {
    "type": "function",
    "function": {
        "name": "odd",
        "description": "What the weather is like, in °C & <b>wind</b>",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": " Which city "},
                "days": {"type": "array", "items": {"type": "integer"}, "description": "Which days"},
                "unit": {"type": ["string", "null"], "enum": ["c", "f"], "description": "A 'unit' or \"none\""},
                "where": {"type": "object", "additionalProperties": {"type": "number"}, "description": "Coordinates"},
            },
            "required": ["city"],
        },
    },
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Which <city> "},
                "days": {"type": "array", "items": {"type": "integer"}, "description": "Which days"},
                "where": {"type": "object", "additionalProperties": {"type": "number"}, "description": "Coordinates"},
            },
            "required": ["city"],
        },
        "return": {"type": "number", "description": "Degrees"},
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}},
}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


ODD = "a <b>&amp; \"quoted\" 'single' \\ back\ttab\nline\r\nend é 汉字 🦀 \u2028 {{ x }} {% y %} %s"
HI, YES = say("user", "Hi there"), say("assistant", "Hello! How can I help?")
ASK = say("user", "What is the weather in Zürich?")
CALL = say("assistant", "", tool_calls=[call("call00001", "weather", {"city": "Zürich", "days": [1, 2], "x": None, "y": 1.5, "z": True})])
SAID = say("tool", '{"t": 21, "note": "<ok>"}', tool_call_id="call00001", name="weather")
PARALLEL = say("assistant", "Let me look.", tool_calls=[call("call00001", "weather", {"city": "a"}), call("call00002", "clock", {})])
CLOCKED = say("tool", "12:00", tool_call_id="call00002", name="clock")

CONVERSATIONS = {
    "plain": {"messages": [HI]},
    "no prompt": {"messages": [HI, YES], "add_generation_prompt": False},
    "system": {"messages": [say("system", "Be brief. "), HI]},
    "turns": {"messages": [HI, YES, say("user", "And then?"), say("assistant", " Then this.\n"), say("user", "Fine\n")]},
    "system and turns": {"messages": [say("system", "Be brief."), HI, YES, say("user", "And then?")]},
    "late system": {"messages": [HI, YES, say("system", "Be brief."), say("user", "Go on")]},
    "out of turn": {"messages": [HI, say("user", "Still there?")]},
    "assistant first": {"messages": [YES, HI]},
    "empty": {"messages": [say("user", ""), say("assistant", ""), say("user", "")]},
    "empty system": {"messages": [say("system", ""), HI]},
    "odd": {"messages": [say("system", ODD), say("user", ODD), say("assistant", ODD), say("user", ODD)]},
    "no messages": {"messages": []},
    "tools": {"messages": [ASK], "tools": [WEATHER, CLOCK]},
    "odd tool": {"messages": [ASK], "tools": [ODD_TOOL]},
    "tools and system": {"messages": [say("system", "Be brief."), ASK], "tools": [WEATHER]},
    "call": {"messages": [ASK, CALL], "tools": [WEATHER], "add_generation_prompt": False},
    "result": {"messages": [ASK, CALL, SAID], "tools": [WEATHER, CLOCK]},
    "result without tools": {"messages": [ASK, CALL, SAID]},
    "after result": {"messages": [ASK, CALL, SAID, say("assistant", "Warm."), say("user", "Thanks")], "tools": [WEATHER]},
    "parallel calls": {"messages": [ASK, PARALLEL, SAID, CLOCKED], "tools": [WEATHER, CLOCK]},
    "calls in a row": {"messages": [ASK, CALL, SAID, PARALLEL, SAID, CLOCKED, say("user", "Thanks")], "tools": [WEATHER]},
    "odd arguments": {"messages": [ASK, say("assistant", "", tool_calls=[call("1", "f", {"a": ODD, "b": [[], {}, -0.5, 1e20, 1e-7, 12345678901234567890]})])]},
    "thinking on": {"messages": [HI], "enable_thinking": True},
    "thinking off": {"messages": [HI], "enable_thinking": False},
    "thinking off with turns": {"messages": [HI, YES, say("user", "And?")], "enable_thinking": False},
    "reasoning": {"messages": [HI, say("assistant", "Hello!", reasoning_content="They greet me.\n")], "add_generation_prompt": False},
    "reasoning before": {"messages": [HI, say("assistant", "Hello!", reasoning_content="They greet."), say("user", "And?")]},
    "reasoning in content": {"messages": [HI, say("assistant", "<think>\nThey greet.\n</think>\n\nHello!"), say("user", "And?")]},
    "reasoning and call": {"messages": [ASK, dict(CALL, reasoning_content="Ask."), SAID], "tools": [WEATHER]},
    "no thinking by system": {"messages": [say("system", "Be brief. /no_think"), HI, YES, say("user", "And?")]},
    "date": {"messages": [HI], "date_string": "1 Apr 2025"},
    "tools in system": {"messages": [say("system", "S"), ASK], "tools": [WEATHER], "tools_in_user_message": False},
    "documents": {"messages": [HI], "documents": [{"title": "T", "text": "<p>é</p>"}, {"title": "U", "text": ""}]},
}


# What our own templates, which mostly do the same whatever is said, are given.
FEW = ["plain", "no prompt", "system", "turns", "system and turns", "out of turn", "empty", "odd", "no messages", "odd tool",
       "parallel calls", "documents"]


def render(source, conversation):
    given = {"add_generation_prompt": True, "tools": None, "documents": None, **SPECIAL, **conversation}
    messages = given.pop("messages")
    try:
        texts, _ = utils.render_jinja_template([messages], chat_template=source, **given)
        return {"text": texts[0]}
    except jinja2.exceptions.TemplateError as error:
        is_raised = type(error) is jinja2.exceptions.TemplateError
        return {"raises": error.message if is_raised else None}
    except Exception:
        return {"raises": None}


def main(golden, published):
    files = sorted((golden / "templates").glob("*.jinja")) + sorted(published.glob("*.jinja"))
    cases = []
    for file in files:
        source = file.read_text()
        for name in CONVERSATIONS if file.parent == published else FEW:
            cases.append({"template": file.name, "conversation": name, **render(source, CONVERSATIONS[name])})
    out = {"now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()), **SPECIAL, "conversations": CONVERSATIONS}
    lines = [json.dumps(case, ensure_ascii=False) for case in cases]
    text = json.dumps(out, ensure_ascii=False, indent=1)[:-2] + ',\n "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    (golden / "goldens.json").write_text(text)
    print(len(cases), "cases of", len(files), "templates,", len(text), "bytes")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
