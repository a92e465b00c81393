"""Drives the page of `atta serve` in Chromium: python page.py --atta PATH [--shots FOLDER] [--browser PATH].

Needs `pip install -r page.txt` and a Chromium. What a model writes is not foreseen: the checks on a real answer are about
its course, and where the text matters (Markdown, tools, errors) the answer is one that stands here. Exits 1 on failure.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from serving import Server

FINISHED = ".turn.assistant:last-child:not([data-state=live])"
COMPLETIONS = "**/v1/chat/completions"
PROMPT_TOKENS = "**/v1/chat/completions/input_tokens"
VENDOR = Path(__file__).resolve().parents[2] / "tools/page/vendor.py"
HOSTILE = """# Title <img src=x onerror="window.pwned=1">

<script>window.pwned=2</script> and **bold <b onclick=alert(1)>text</b>**, [bad](javascript:window.pwned=3),
[worse](data:text/html,<script>1</script>), [good](https://example.org/a_(b)) and `code <i>`.

- one
  1. nested
- two
- [x] three

| a | b |
|---|--:|
| 1 | <svg onload=window.pwned=4> |

> quoted

```html
<img src=x onerror=window.pwned=5>
```
"""


MATHS = r"""From \(a^2 + b^2\) to \[ x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}, \quad y_1 \, y_2 \]

$$
\begin{aligned} f(x) &= \sum_{n=0}^\infty a_n x^n \\ &= 1 \end{aligned}
$$

1. In a list, $\mathcal{O}(n)$ and $\mathbb{R}$:
   \[ \left( \int_0^1 x\,dx \right)^2 \]

It costs $5, or $10 for two, not `$x$`. \(\href{javascript:window.pwned=7}{h}\) \(\frac{\)
"""


class Browser:
    """Pages that fail the run when a script or the content security policy complains."""

    def __init__(self, browser, url: str, shots: Path):
        self.browser, self.url, self.shots = browser, url, shots
        self.complaints: list[str] = []

    def open(self, width=1280, height=860, scheme="light", **options) -> Page:
        viewport = {"width": width, "height": height}
        page = self.browser.new_context(viewport=viewport, color_scheme=scheme, **options).new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("console", lambda line: self.note(line))
        page.goto(self.url)
        expect(page.locator("#model option").first).to_be_attached()
        set_up(page, max_tokens=48)
        return page

    def note(self, line) -> None:
        # Answers that are errors, and servers without /props or /metrics, are no defects of the page.
        if line.type == "error" and "Failed to load resource" not in line.text:
            self.complaints.append(f"console: {line.text}")

    def shoot(self, page: Page, name: str) -> None:
        page.screenshot(path=self.shots / f"{name}.png")


def set_up(page: Page, **settings) -> None:
    """Sets fields of the settings, through the fields."""
    was_open = page.locator("#panel").is_visible()
    if not was_open:
        page.click("#toggle-panel")
    for name, value in settings.items():
        field = page.locator(f"#settings [name={name}]")
        field.select_option(value) if name in ("format", "tool_choice") else field.fill(str(value))
    if not was_open:
        page.click("#panel .close")


def say(page: Page, text: str) -> None:
    page.fill("#input", text)
    page.press("#input", "Enter")


def finish(page: Page, state="done") -> None:
    page.wait_for_selector(FINISHED, timeout=120_000)
    expect(page.locator(".turn.assistant").last).to_have_attribute("data-state", state)
    expect(page.locator("#send")).to_have_text("Send")


def saved(page: Page) -> list[dict]:
    """The messages of the conversation that was changed last."""
    return page.evaluate("""() => Object.keys(localStorage).filter((key) => key.startsWith('atta.chat.'))
        .map((key) => JSON.parse(localStorage[key])).sort((a, b) => b.updated - a.updated)[0].messages""")


def answer_with(page: Page, *deltas: dict, timings: dict | None = None) -> list[dict]:
    """Has the next requests answered with these pieces; returns the list that the requests will be put into."""
    requests: list[dict] = []
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    usage = {"prompt_tokens": 7, "completion_tokens": len(deltas), "total_tokens": 7 + len(deltas)}
    chunks.append({"choices": [], "usage": usage, "timings": timings})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    def fulfil(route):
        requests.append(route.request.post_data_json)
        route.fulfill(status=200, content_type="text/event-stream", body=body)

    page.unroute(COMPLETIONS)
    page.route(COMPLETIONS, fulfil)
    return requests


def check_policy(site: Browser) -> None:
    page = site.open()
    policy = page.request.get(site.url).headers.get("content-security-policy", "")
    assert "default-src 'self'" in policy and "unsafe" not in policy, f"content security policy: {policy!r}"
    refused = page.evaluate("() => { try { document.body.innerHTML = '<b>'; } catch (error) { return error.name; } }")
    assert refused == "TypeError", "markup comes into the page past DOMPurify"
    site.complaints.clear()


def check_libraries(_: Browser) -> None:
    subprocess.run([sys.executable, VENDOR, "--check"], check=True)


def check_send(site: Browser) -> None:
    page = site.open()
    site.shoot(page, "empty")
    say(page, "Once upon a time")
    finish(page)
    message = saved(page)[-1]
    text = message["content"].strip() or message.get("reasoning", "").strip()
    assert text, "the answer is empty"
    assert message["stats"]["exact"] and message["stats"]["tokens"] <= 48, f"usage: {message['stats']}"
    expect(page.locator(".stats").last).to_contain_text("token")
    expect(page.locator("#announce")).to_contain_text(message["content"].strip()[:10])
    site.shoot(page, "answer")
    page.reload()
    expect(page.locator(".turn")).to_have_count(2)


def check_stop(site: Browser) -> None:
    page = site.open()
    set_up(page, max_tokens="")
    # A small model would be done before anybody can stop it.
    page.route("**/v1/chat/completions", lambda route: None)
    say(page, "Count to ten thousand, in words.")
    expect(page.locator("#send")).to_have_text("Stop")
    page.keyboard.press("Escape")
    finish(page, "stopped")
    page.unroute("**/v1/chat/completions")
    set_up(page, max_tokens=8)
    say(page, "Hello")
    finish(page)


def check_regenerate(site: Browser) -> None:
    page = site.open()
    set_up(page, max_tokens=12, seed=1)
    say(page, "Hello")
    finish(page)
    first = saved(page)[-1]
    page.get_by_role("button", name="Regenerate").click()
    finish(page)
    expect(page.locator(".turn")).to_have_count(2)
    again = saved(page)[-1]
    same = all(again.get(part) == first.get(part) for part in ("content", "reasoning"))
    assert same, "the same seed gave another text"


def check_json(site: Browser) -> None:
    page = site.open()
    set_up(page, format="json", max_tokens=200)
    say(page, "Describe an ant.")
    finish(page)
    json.loads(saved(page)[-1]["content"])
    expect(page.locator(".code.wrap")).to_be_visible()
    site.shoot(page, "json")
    set_up(page, format="schema", schema='{"type": "obj')
    say(page, "Again.")
    finish(page, "failed")
    expect(page.locator(".failure").last).to_contain_text("JSON Schema")


def check_markdown(site: Browser) -> None:
    page = site.open()
    answer_with(page, *({"content": HOSTILE[i : i + 5]} for i in range(0, len(HOSTILE), 5)))
    say(page, '<img src=x onerror="window.pwned=6">')
    finish(page)
    thread = page.locator("#thread")
    assert thread.locator("img, script, iframe, b, svg, [onerror], [onclick], [onload]").count() == 0, "markup came through"
    expect(thread.locator(".assistant")).to_contain_text("<script>window.pwned=2</script>")
    links = thread.locator("a").evaluate_all("(all) => all.map((a) => [a.href, a.rel])")
    assert links == [["https://example.org/a_(b)", "noopener noreferrer"]], f"links: {links}"
    for selector in ["h3", "strong", "ul > li > ol > li", "li.task input[checked]", "table td[align=right]", "blockquote", ".code code", "p > code"]:
        assert thread.locator(selector).count(), f"no {selector}"
    assert page.evaluate("window.pwned") is None, "a script ran"
    site.shoot(page, "markdown")
    check_prefixes(page, HOSTILE + "\n[a link][1] and\n\nmore\n\n[1]: https://example.org/b\n")


def check_prefixes(page: Page, text: str) -> None:
    """What has come piece by piece must look as if it had come at once."""
    same = page.evaluate("""async (text) => {
        const { Markdown } = await import('/markdown.js');
        const [slow, fast] = [document.createElement('div'), document.createElement('div')];
        const view = new Markdown(slow);
        for (let n = 1; n <= text.length; n += 1) view.update(text.slice(0, n), true);
        view.update(text, false);
        new Markdown(fast).update(text, false);
        return slow.innerHTML === fast.innerHTML;
    }""", text)
    assert same, "the text that came in pieces looks different"


def check_deep_markdown(site: Browser) -> None:
    page = site.open()
    deep = "> " * 5000 + "deep"
    answer_with(page, {"content": deep})
    say(page, "Hello")
    finish(page)
    expect(page.locator(".assistant .body")).to_have_text(deep)


def check_maths(site: Browser) -> None:
    page = site.open()
    answer_with(page, *({"content": MATHS[i : i + 5]} for i in range(0, len(MATHS), 5)))
    say(page, "Solve it.")
    finish(page)
    text = page.locator(".turn.assistant")
    expect(text.locator(".katex")).to_have_count(7)
    expect(text.locator(".math.display .katex")).to_have_count(3)
    expect(text).to_contain_text("It costs $5, or $10 for two, not $x$.")
    expect(text.locator(".math").last).to_have_text(r"\frac{")
    assert text.locator("a").count() == 0, "TeX made a link"
    copied = page.evaluate("""() => {
        const event = new ClipboardEvent('copy', { bubbles: true, cancelable: true, clipboardData: new DataTransfer() });
        getSelection().selectAllChildren(document.querySelector('.assistant .body'));
        document.querySelector('.assistant .body').dispatchEvent(event);
        return event.clipboardData.getData('text/plain');
    }""")
    assert copied.startswith("From $a^2 + b^2$ to") and r"$$\left(" in copied, copied
    site.shoot(page, "maths")
    check_prefixes(page, MATHS)


def check_speed(site: Browser) -> None:
    page = site.open()
    answer_with(page, *[{"content": "a"}] * 5, timings={"prompt_ms": 1500.0, "predicted_ms": 200.0})
    say(page, "Hello")
    finish(page)
    expect(page.locator(".stats")).to_have_text("5 tokens · 20.0 tokens/s · prompt 7 in 1.5 s")
    expect(page.locator("#context")).to_contain_text("12 /")


def check_meter_while_the_prompt_is_read(site: Browser) -> None:
    page = site.open()
    page.route(COMPLETIONS, lambda route: None)
    page.route(PROMPT_TOKENS, lambda route: route.fulfill(json={"input_tokens": 123}))
    say(page, "Hello")
    expect(page.locator("#context")).to_contain_text("123 /")
    page.keyboard.press("Escape")
    finish(page, "stopped")
    expect(page.locator("#context")).to_contain_text("123 /")


def check_drafts(site: Browser) -> None:
    page = site.open()
    page.fill("#input", "of the next one")
    page.reload()
    expect(page.locator("#input")).to_have_value("of the next one")
    answer_with(page, {"content": "Fine."})
    page.press("#input", "Enter")
    finish(page)
    page.fill("#input", "of this one")
    page.keyboard.press("Control+k")
    expect(page.locator("#input")).to_have_value("")
    page.go_back()
    expect(page.locator("#input")).to_have_value("of this one")


def check_versions(site: Browser) -> None:
    page = site.open()
    for text in ["first", "second"]:
        answer_with(page, {"content": text})
        say(page, "Hello") if text == "first" else page.get_by_role("button", name="Regenerate").click()
        finish(page)
    answer_with(page, {"content": "third"})
    page.locator(".turn.user").get_by_role("button", name="Edit").click()
    page.keyboard.type(" there")
    page.keyboard.press("Enter")
    finish(page)
    user, answer = page.locator(".turn.user"), page.locator(".turn.assistant")
    expect(user.locator(".versions")).to_contain_text("2 / 2")
    expect(answer.locator(".versions")).to_have_count(0)
    user.get_by_label("Version before").click()
    expect(user.locator(".body")).to_have_text("Hello")
    expect(answer.locator(".versions")).to_contain_text("2 / 2")
    answer.get_by_label("Version before").click()
    page.reload()
    expect(answer.locator(".body")).to_have_text("first")
    requests = answer_with(page, {"content": "fourth"})
    answer.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit the answer").fill("mine")
    page.get_by_role("button", name="Save").click()
    say(page, "And?")
    finish(page)
    assert [message["content"] for message in requests[0]["messages"]] == ["Hello", "mine", "And?"], requests


def check_tools(site: Browser) -> None:
    page = site.open()
    if not page.locator("#tools-field").evaluate("(field) => !field.hidden"):
        return
    set_up(page, tools='[{"name": "get_weather", "parameters": {"type": "object"}}]')
    call = {"index": 0, "id": "abc123def", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": '}}
    requests = answer_with(page, {"tool_calls": [call]}, {"tool_calls": [{"index": 0, "function": {"arguments": '"Lima"}'}}]})
    say(page, "Is it warm in Lima?")
    finish(page)
    expect(page.locator(".call h3")).to_contain_text("get_weather")
    assert requests[0]["tools"][0]["function"]["name"] == "get_weather"
    site.shoot(page, "tools")
    requests = answer_with(page, {"content": "Yes."})
    page.fill(".call textarea", "17 °C")
    page.get_by_role("button", name="Send result").click()
    finish(page)
    calls, result = requests[0]["messages"][-2:]
    assert calls["tool_calls"][0]["function"]["arguments"] == '{"city": "Lima"}', calls
    assert result == {"role": "tool", "tool_call_id": "abc123def", "content": "17 °C"}, result


def check_errors(site: Browser) -> None:
    page = site.open()
    error = json.dumps({"error": {"message": "out of memory: 9 MB needed"}})
    page.route(COMPLETIONS, lambda route: route.fulfill(status=503, content_type="application/json", body=error))
    say(page, "Hello")
    finish(page, "failed")
    expect(page.locator(".failure")).to_have_text("out of memory: 9 MB needed")
    site.shoot(page, "error")
    requests = answer_with(page, {"content": "Better."})
    page.get_by_role("button", name="Try again").click()
    finish(page)
    assert [message["role"] for message in requests[0]["messages"]] == ["user"], requests


def check_keyboard(site: Browser) -> None:
    page = site.open()
    requests = answer_with(page, {"content": "Fine."})
    page.focus("#input")
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    finish(page)
    assert requests[-1]["messages"] == [{"role": "user", "content": "one\ntwo"}], requests
    page.focus("#input")
    page.keyboard.press("ArrowUp")
    page.keyboard.type(" three")
    page.keyboard.press("Enter")
    finish(page)
    assert requests[-1]["messages"] == [{"role": "user", "content": "one\ntwo three"}], requests
    page.keyboard.press("Control+k")
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.locator("#input")).to_be_focused()


def check_conversations(site: Browser) -> None:
    page = site.open()
    answer_with(page, {"content": "Fine."})
    for text in ["first", "second"]:
        say(page, text)
        finish(page)
        page.keyboard.press("Control+k")
    row = page.locator("#chats li", has_text="first")
    row.hover()
    row.get_by_role("button", name="Rename").click()
    page.keyboard.type("renamed")
    page.keyboard.press("Enter")
    row = page.locator("#chats li", has_text="renamed")
    row.hover()
    with page.expect_download() as download:
        row.get_by_role("button", name="Export").click()
    assert json.loads(Path(download.value.path()).read_text())["messages"][0]["content"] == "first"
    row.hover()
    row.get_by_role("button", name="Delete").click()
    expect(page.locator("#chats li")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#chats li")).to_have_count(2)


def check_search_and_import(site: Browser) -> None:
    page = site.open()
    answer_with(page, {"content": "An ant."})
    for text in ["first", "second"]:
        say(page, text)
        finish(page)
        page.keyboard.press("Control+k")
    rows = page.locator("#chats li")
    page.fill("#search", "ANT second")
    expect(rows).to_have_count(1)
    page.fill("#search", "bee")
    expect(rows).to_have_text("None has these words.")
    page.fill("#search", "")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    page.set_input_files("#file", download.value.path())
    expect(page.locator("#notice")).to_contain_text("2 are here already")
    hostile = {"messages": [{"role": "user", "content": "<img src=x onerror=window.pwned=8>"}]}
    page.set_input_files("#file", {"name": "a.json", "mimeType": "application/json", "buffer": json.dumps(hostile).encode()})
    expect(page.locator(".turn.user .body")).to_have_text("<img src=x onerror=window.pwned=8>")
    expect(rows).to_have_count(3)
    page.set_input_files("#file", {"name": "b.json", "mimeType": "application/json", "buffer": b'[{"messages": [{"role": 1}]}]'})
    expect(page.locator("#notice")).to_contain_text("cannot be imported")
    expect(rows).to_have_count(3)


def check_addresses(site: Browser) -> None:
    page = site.open()
    answer_with(page, {"content": "Fine."})
    say(page, "first")
    finish(page)
    first = page.url
    page.keyboard.press("Control+k")
    assert "#" not in page.url, page.url
    other = page.context.new_page()
    other.goto(first)
    expect(other.locator(".turn.user .body")).to_have_text("first")
    say(page, "second")
    finish(page)
    expect(other.locator("#chats li")).to_have_count(2)
    page.go_back()
    page.go_back()
    expect(page.locator(".turn.user .body")).to_have_text("first")
    page.goto(f"{site.url}#nowhere")
    expect(page.locator("#notice")).to_contain_text("does not have that conversation")


def check_phone(site: Browser) -> None:
    page = site.open(360, 740, is_mobile=True, has_touch=True, device_scale_factor=2)
    answer_with(page, {"content": HOSTILE})
    say(page, "w" * 100)
    finish(page)
    width = page.evaluate("Math.max(document.documentElement.scrollWidth, document.getElementById('scroll').scrollWidth)")
    assert width <= 360, f"the page is {width} px wide"
    site.shoot(page, "phone")
    page.click("#toggle-nav")
    site.shoot(page, "phone-nav")
    page.keyboard.press("Escape")
    expect(page.locator("#nav")).to_be_hidden()
    page.click("#toggle-panel")
    site.shoot(page, "phone-panel")


def check_dark(site: Browser) -> None:
    page = site.open(scheme="dark")
    answer_with(page, {"content": HOSTILE})
    say(page, "Hello")
    finish(page)
    site.shoot(page, "dark")
    page.select_option("#theme", "light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.select_option("#theme", "dark")
    assert light != page.evaluate("getComputedStyle(document.body).backgroundColor"), "the switch does nothing"


def node(name: str, first: int, end: int, **more) -> dict:
    """A machine of a ring of 24 layers, as `/api/cluster` has it."""
    known = {
        "node": name, "address": "10.0.0.2:9990", "state": "ready", "why": None, "first_layer": first, "end_layer": end,
        "share": (end - first) / 24, "memory_bytes": 4e9, "memory_held_bytes": 1.3e9, "memory_free_bytes": 2.1e9,
        "compute_us": 34_000.5, "layer_us": 4250.1, "bytes_out": 8228, "celsius": 61.2, "is_throttled": False, "heard_s": 1,
        "totals": {"n_batches": 7, "n_rows": 90, "compute_s": 0.5, "bytes_out": 740_000},
        "link": {"to": "next", "rtt_p50_us": 214.3, "rtt_p90_us": 390.0, "bytes_per_s": 1.1e8},
    }
    return known | more


def ring(**more) -> dict:
    nodes = [
        node("lap", 0, 6, state="coordinator", address=None, totals=None, bytes_out=None, celsius=None),
        node("pi1", 6, 16, is_throttled=True, celsius=81.0),
        node("pi2", 16, 24, state="silent", why="it does not answer", heard_s=75),
    ]
    events = [{"node": "lap", "ago_s": 4, "event": "epoch 2: stage 2 is silent"}, {"node": "lap", "ago_s": 400, "event": "the ring opens"}]
    known = {
        "state": "open", "coordinator": "lap", "model": "model.gguf", "n_layers": 24, "epoch": 2, "n_fences": 2, "n_rebuilds": 0,
        "n_batches": 7, "n_rows": 90, "expected": {"decode_tok_s": 9.1, "users_tok_s": 20.5},
        "measured": {"decode_tok_s": 8.75, "users_tok_s": None}, "lap_us": 114_285.7, "hops_us": 900.0, "nodes": nodes, "events": events,
    }
    return known | more


def open_ring(site: Browser, *answers: dict | None, **options) -> Page:
    """The page of a ring that is told by these answers, the last one again and again."""
    page = site.open(**options)
    left = list(answers)
    page.route("**/api/cluster", lambda route: route.fulfill(json={"ring": left.pop(0) if len(left) > 1 else left[0]}))
    page.goto(f"{site.url}cluster")
    return page


def check_ring(site: Browser) -> None:
    page = open_ring(site, ring(), ring(state="repairing", epoch=3))
    rows = page.locator("#machines tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("6 to 15")
    expect(rows.nth(1)).to_contain_text("81 throttled")
    expect(rows.nth(2)).to_contain_text("it does not answer")
    expect(page.locator("#ring path")).to_have_count(3)
    expect(page.get_by_role("img", name="A ring of 3 machines: lap, coordinator, layers 0 to 5")).to_be_visible()
    expect(page.locator("#ring .speed")).to_have_text("8.8")
    expect(page.locator("#numbers")).to_contain_text("8.8 tokens/s (expected 9.1)")
    expect(page.locator("#events li").last).to_contain_text("the ring opens")
    site.shoot(page, "ring")
    # The next answer comes by itself.
    expect(page.locator("#state")).to_have_text("repairs itself, epoch 3")
    page.unroute("**/api/cluster")
    page.route("**/api/cluster", lambda route: route.abort())
    expect(page.locator("#notice")).to_contain_text("cannot be reached")
    expect(rows).to_have_count(3)


def check_ring_escapes(site: Browser) -> None:
    hostile = '<img src=x onerror="window.pwned=1"><b>x</b>'
    event = {"node": hostile, "ago_s": 1, "event": hostile}
    page = open_ring(site, ring(model=hostile, coordinator=hostile, nodes=[node(hostile, 0, 24, why=hostile, state=hostile)], events=[event]))
    expect(page.locator("#machines")).to_contain_text(hostile)
    expect(page.locator("#events")).to_contain_text(hostile)
    expect(page.locator("#ring .name")).to_contain_text(hostile[:17])
    assert page.locator("main").locator("img, b, script, [onerror]").count() == 0, "markup came through"
    assert page.evaluate("window.pwned") is None, "a script ran"


def check_ring_on_a_phone_in_the_dark(site: Browser) -> None:
    nodes = [node(f"a-node-with-a-long-name-{i}", 4 * i, 4 * i + 4) for i in range(6)]
    page = open_ring(site, ring(nodes=nodes), width=360, height=740, scheme="dark", device_scale_factor=2)
    expect(page.locator("#machines tr")).to_have_count(6)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360, f"the page is {width} px wide"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    site.shoot(page, "ring-phone")
    page.evaluate("localStorage['atta.theme'] = 'light'")
    page.reload()
    assert dark != page.evaluate("getComputedStyle(document.body).backgroundColor"), "it does not look as the other page"


def check_no_ring(site: Browser) -> None:
    page = site.open()
    expect(page.locator("#cluster")).to_be_hidden()
    page.goto(f"{site.url}cluster")
    expect(page.locator("#notice")).to_contain_text("No ring")
    expect(page.locator("#main")).to_be_hidden()


def check_link_to_the_ring(site: Browser) -> None:
    page = site.open()
    page.route("**/metrics", lambda route: route.fulfill(content_type="text/plain", body="atta_ring_nodes 3\n"))
    page.route("**/api/cluster", lambda route: route.fulfill(json={"ring": ring()}))
    page.reload()
    page.get_by_role("link", name="Ring of 3 machines").click()
    expect(page.locator("#machines tr")).to_have_count(3)
    page.get_by_role("link", name="atta").click()
    expect(page.locator("#model option").first).to_be_attached()


def check_key_of_the_ring(site: Browser) -> None:
    page = site.open()
    wrong = {"status": 401, "json": {"error": "this server wants an API key"}}
    is_right = lambda route: route.request.headers.get("authorization") == "Bearer sesame"
    page.route("**/api/cluster", lambda route: route.fulfill(**({"json": {"ring": ring()}} if is_right(route) else wrong)))
    page.goto(f"{site.url}cluster")
    expect(page.locator("#notice")).to_contain_text("API key")
    page.fill("#key", "sesame")
    page.press("#key", "Enter")
    expect(page.locator("#machines tr")).to_have_count(3)
    expect(page.locator("#connection")).to_be_hidden()


def call(arguments: str) -> dict:
    return {"id": "abc123def", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def all_of_it() -> dict:
    """A conversation with all that a page can show, in the form of an export."""
    table = "| Town | °C | Rain |\n|:--|--:|:-:|\n| Lima | 17 | no |\n| Reykjavík | 3 | **yes** |\n\n- [x] asked\n- [ ] packed"
    stats = {"tokens": 214, "exact": True, "prompt": 1204, "cached": 1100, "wait_ms": 412, "write_ms": 6100}
    messages = [
        {"role": "user", "content": "Solve x² + px + q = 0, and show me how.\nThen the weather, please."},
        {"role": "assistant", "reasoning": "They want the formula first.", "content": MATHS.splitlines()[0], "stats": stats},
        {"role": "user", "content": "And the weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call('{"city": "Lima", "days": [1, 2]}')]},
        {"role": "tool", "tool_call_id": "abc123def", "content": "17 °C"},
        {"role": "assistant", "content": f"## Weather\n\n{table}\n\n```python\nprint(17)  # °C\n```", "stats": stats},
        {"role": "user", "content": "Again."},
        {"role": "assistant", "content": "", "error": "the prompt has 5000 tokens, expected at most 4096"},
    ]
    return {"title": "Weather and a formula", "messages": messages}


STALLED = """(text) => {
    const ask = window.fetch;
    const chunks = text.match(/[^]{1,9}/g).map((content) => `data: ${JSON.stringify({choices: [{delta: {content}}]})}\n\n`);
    const start = (controller) => chunks.forEach((chunk) => controller.enqueue(new TextEncoder().encode(chunk)));
    window.fetch = async (path, options) => (path.endsWith('/completions') ? new Response(new ReadableStream({ start })) : ask(path, options));
}"""


def take_pictures(site: Browser) -> None:
    """Pictures to look at, for three widths, light and dark: everything, and an answer that is being written."""
    file = {"name": "a.json", "mimeType": "application/json", "buffer": json.dumps(all_of_it()).encode()}
    for width, height in [(1280, 1700), (390, 1900), (320, 1900)]:
        for scheme in ["light", "dark"]:
            page = site.open(width, height, scheme=scheme)
            page.set_input_files("#file", file)
            expect(page.locator(".turn")).to_have_count(7)
            expect(page.locator(".katex").first).to_be_attached()
            page.wait_for_timeout(300)
            site.shoot(page, f"all-{width}-{scheme}")
            page.set_viewport_size({"width": width, "height": 700})
            page.keyboard.press("Control+k")
            page.evaluate(STALLED, MATHS[: MATHS.index("y_1")])
            say(page, "Solve it.")
            expect(page.locator(".math.open")).to_be_attached()
            site.shoot(page, f"writing-{width}-{scheme}")


CHECKS = [check_policy, check_libraries, check_send, check_stop, check_regenerate, check_json, check_markdown, check_deep_markdown,
          check_maths, check_speed, check_meter_while_the_prompt_is_read, check_drafts, check_versions, check_tools, check_errors,
          check_keyboard, check_conversations, check_search_and_import, check_addresses, check_phone, check_dark, check_ring,
          check_ring_escapes, check_ring_on_a_phone_in_the_dark, check_no_ring, check_link_to_the_ring, check_key_of_the_ring]


def run(check, site: Browser) -> bool:
    """Whether `check` passed; says so."""
    site.complaints.clear()
    try:
        check(site)
        assert not site.complaints, "; ".join(site.complaints)
        print(f"ok    {check.__name__}", flush=True)
        return True
    except Exception as error:  # a failed check must not hide the others
        print(f"FAIL  {check.__name__}: {error}", flush=True)
        return False
    finally:
        for context in site.browser.contexts:
            context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atta", required=True, help="the program")
    parser.add_argument("--shots", type=Path, help="pictures go here, instead of nowhere")
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    args = parser.parse_args()
    with ExitStack() as stack:
        shots = args.shots or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shots.mkdir(parents=True, exist_ok=True)
        server = stack.enter_context(Server(os.path.abspath(args.atta)))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        site = Browser(browser, f"{server.place}/", shots)
        passed = [run(check, site) for check in CHECKS + [take_pictures] * bool(args.shots)]
        browser.close()
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
