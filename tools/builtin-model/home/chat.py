"""How a conversation is written: the special tokens, the chat template of the GGUF file, and the same in Python.

The template must say what `pieces` says, to the byte; train.py checks it with Jinja before it begins.
"""

import json

BEGIN, END = "<|begin|>", "<|end|>"
TOOLS, SYSTEM, USER, ASSISTANT, TOOL = "<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
SPECIAL = [BEGIN, END, TOOLS, SYSTEM, USER, ASSISTANT, TOOL, CALL, CALL_END]

TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
  {{- '<|tools|>' }}
  {%- for tool in tools %}
    {{- ' ' + (tool.function or tool).name }}
  {%- endfor %}
  {{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
    {{- raise_exception('this model knows no role ' + message.role) }}
  {%- endif %}
  {{- '<|' + message.role + '|>' + (message.content or '') }}
  {%- for call in message.tool_calls or [] %}
    {%- set function = call.function or call %}
    {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
    {{- function.arguments if function.arguments is string else function.arguments | tojson }}
    {{- '}\\n</tool_call>' }}
  {%- endfor %}
  {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|assistant|>' }}
{%- endif %}
"""

# How much a token counts in training: nothing where it is given; words, of which many would do, less than a call.
GIVEN_WEIGHT, REPORT_WEIGHT, WORDS_WEIGHT, CALL_WEIGHT = 0, 1, 2, 8


def as_json(value):
    return json.dumps(value, ensure_ascii=False)


def call_text(name, arguments):
    return f'{CALL}\n{{"name": "{name}", "arguments": {as_json(arguments)}}}\n{CALL_END}'


def pieces(tools, messages):
    """[(text, weight)] of a conversation, special tokens as their text; messages as in OpenAI's interface."""
    out = [(BEGIN, GIVEN_WEIGHT)]
    if tools:
        out.append((TOOLS + "".join(" " + name for name in tools) + END, GIVEN_WEIGHT))
    for before, message in zip([{}, *messages], messages):
        role = message["role"]
        calls = "".join(call_text(call["name"], call["arguments"]) for call in message.get("tool_calls", []))
        spoken = REPORT_WEIGHT if before.get("role") == "tool" else WORDS_WEIGHT
        weight = GIVEN_WEIGHT if role != "assistant" else CALL_WEIGHT if calls else spoken
        out.append((f"<|{role}|>", GIVEN_WEIGHT))
        out.append((message.get("content", "") + calls + END, weight))
    return out
