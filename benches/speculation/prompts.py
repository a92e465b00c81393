"""Eighty prompts: 20 each to edit code, to answer from a document, to call tools in JSON, and to tell a story.

Knows no model and no engine: a prompt is what a user says, and for tools the schema of the answer.
"""

import json
import re
from dataclasses import dataclass

KINDS = ("edit", "document", "tools", "story")
N_EACH = 20
PASSAGE_CHARS = 1200

CODES = [
    """def mean(values):
    total = 0.0
    for value in values:
        total += value
    if not values:
        return 0.0
    return total / len(values)


def spread(values):
    middle = mean(values)
    total = 0.0
    for value in values:
        total += (value - middle) ** 2
    return (total / max(1, len(values))) ** 0.5
""",
    """class Queue:
    def __init__(self, limit):
        self.limit = limit
        self.items = []

    def push(self, item):
        if len(self.items) >= self.limit:
            raise IndexError("the queue is full")
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("the queue is empty")
        return self.items.pop(0)
""",
    """fn count_words(text: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        let key = word.to_lowercase();
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

fn most_common(text: &str) -> Option<String> {
    let counts = count_words(text);
    counts.into_iter().max_by_key(|pair| pair.1).map(|pair| pair.0)
}
""",
    """function formatPrice(amount, currency) {
  const rounded = Math.round(amount * 100) / 100;
  const text = rounded.toFixed(2);
  if (currency === "EUR") {
    return text + " EUR";
  }
  if (currency === "USD") {
    return "$" + text;
  }
  return text + " " + currency;
}
""",
    """#include <stdio.h>

int largest(const int *values, int n) {
    int best = values[0];
    for (int i = 1; i < n; i++) {
        if (values[i] > best) {
            best = values[i];
        }
    }
    return best;
}

int main(void) {
    int values[] = {3, 9, 2, 7};
    printf("%d\\n", largest(values, 4));
    return 0;
}
""",
    """import csv


def read_table(path):
    with open(path, newline="") as file:
        reader = csv.reader(file)
        header = next(reader)
        return [dict(zip(header, row)) for row in reader]


def column(table, name):
    return [row[name] for row in table if row[name] != ""]


def total(table, name):
    return sum(float(value) for value in column(table, name))
""",
    """SELECT customers.name, COUNT(orders.id) AS n_orders, SUM(orders.amount) AS total
FROM customers
LEFT JOIN orders ON orders.customer_id = customers.id
WHERE customers.country = 'FR'
  AND orders.placed_at >= '2024-01-01'
  AND orders.placed_at < '2025-01-01'
GROUP BY customers.name
HAVING COUNT(orders.id) > 2
ORDER BY total DESC
LIMIT 20;
""",
    """server:
  host: 127.0.0.1
  port: 8080
  workers: 4
  log_level: info
database:
  host: 127.0.0.1
  port: 5432
  name: shop
  user: shop
  pool_size: 10
cache:
  host: 127.0.0.1
  port: 6379
  ttl_seconds: 300
""",
    """def bubble_sort(items):
    items = list(items)
    n = len(items)
    for end in range(n - 1, 0, -1):
        swapped = False
        for i in range(end):
            if items[i] > items[i + 1]:
                items[i], items[i + 1] = items[i + 1], items[i]
                swapped = True
        if not swapped:
            break
    return items
""",
    """type Stack struct {
	items []int
}

func (s *Stack) Push(item int) {
	s.items = append(s.items, item)
}

func (s *Stack) Pop() (int, error) {
	if len(s.items) == 0 {
		return 0, errors.New("the stack is empty")
	}
	last := len(s.items) - 1
	item := s.items[last]
	s.items = s.items[:last]
	return item, nil
}
""",
]
# Two edits of each code, in the same order.
EDITS = [
    ("rename `spread` to `deviation`", "let `mean` return None for an empty list"),
    ("rename the class to `Fifo`", "add a method `__len__`"),
    ("rename `count_words` to `word_counts`", "skip words of fewer than three letters"),
    ("add the currency GBP", "rename `formatPrice` to `priceText`"),
    ("rename `largest` to `maximum`", "let the function return the smallest value"),
    ("rename `read_table` to `load_table`", "read with the encoding utf-8"),
    ("change the country to DE", "change the limit to 50"),
    ("change the host of the database to 10.0.0.5", "change the port of the server to 9090"),
    ("rename the function to `sort_items`", "sort in descending order"),
    ("rename `Stack` to `IntStack`", "add a method `Len`"),
]

PEOPLE = [
    ("Ada Novak", "Prague", 34), ("Ben Okafor", "Lagos", 41), ("Chloe Martin", "Lyon", 28), ("Dan Silva", "Porto", 52),
    ("Eva Berg", "Oslo", 37), ("Femi Ade", "Abuja", 45), ("Grace Lin", "Taipei", 31), ("Hugo Weber", "Bern", 60),
]
# A tool, the names and types of its arguments, and what one call stands for.
TOOLS = [
    ("add_contact", {"name": "string", "city": "string", "age": "integer"}, "Add each of these people to my contacts."),
    ("send_mail", {"to": "string", "subject": "string", "body": "string"}, "Invite each of these people to dinner on Friday."),
    ("get_weather", {"city": "string", "unit": "string"}, "Get the weather, in celsius, in the city of each of these people."),
    ("create_event", {"title": "string", "guest": "string", "duration_minutes": "integer"}, "Plan a meeting of 30 minutes with each of these people."),
    ("book_flight", {"passenger": "string", "destination": "string", "seat": "string"}, "Book a window seat for each of these people, home to their city."),
]

HEROES = ["a clockmaker", "a fox", "a young sailor", "an old teacher", "a robot"]
EVENTS = ["finds a map without names", "loses a key in the snow", "must cross the desert", "hears a voice in a well"]


@dataclass
class Prompt:
    kind: str
    text: str
    schema: dict | None = None


def edits() -> list[Prompt]:
    def prompt(code: str, edit: str) -> Prompt:
        return Prompt("edit", f"Here is some code:\n\n```\n{code}```\n\nPlease {edit}. Write the whole code again, with this change and no other.")

    return [prompt(code, pair[which]) for which in (0, 1) for code, pair in zip(CODES, EDITS, strict=True)]


def documents(text: str) -> list[Prompt]:
    """Passages of a play at equal distances; the question is about the second speaker of each."""
    def prompt(at: int) -> Prompt:
        start = text.index("\n\n", at) + 2
        passage = text[start : text.index("\n\n", start + PASSAGE_CHARS)]
        speakers = re.findall(r"(?:^|\n\n)([A-Z][^\n:]*):\n", passage)
        speaker = speakers[min(1, len(speakers) - 1)]
        question = f"What does {speaker} say in this document? Quote the lines of {speaker} word for word."
        return Prompt("document", f"Document:\n\n{passage}\n\n{question}")

    return [prompt(len(text) * i // (N_EACH + 1)) for i in range(N_EACH)]


def calls_schema(name: str, arguments: dict) -> dict:
    call = {
        "type": "object",
        "properties": {
            "name": {"const": name},
            "arguments": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in arguments.items()},
                "required": list(arguments),
                "additionalProperties": False,
            },
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": call, "minItems": 3}


def tools() -> list[Prompt]:
    def prompt(tool: tuple, first: int) -> Prompt:
        name, arguments, wish = tool
        people = [PEOPLE[(first + i) % len(PEOPLE)] for i in range(5)]
        lines = "\n".join(f"- {person}, {city}, {age} years old" for person, city, age in people)
        definition = json.dumps({"name": name, "parameters": {key: {"type": kind} for key, kind in arguments.items()}})
        form = '[{"name": "…", "arguments": {…}}, …]'
        text = f"You can call this tool:\n{definition}\n\n{wish}\n{lines}\n\nAnswer with a JSON array of calls, such as {form}."
        return Prompt("tools", text, calls_schema(name, arguments))

    return [prompt(tool, first) for first in (0, 2, 4, 6) for tool in TOOLS]


def stories() -> list[Prompt]:
    return [Prompt("story", f"Tell me a story about {hero} who {event}.") for event in EVENTS for hero in HEROES]


def prompts(text: str) -> dict[str, list[Prompt]]:
    """All prompts by kind; `text` is a play, with the name of each speaker on a line of its own."""
    lists = (edits(), documents(text), tools(), stories())
    return dict(zip(KINDS, lists, strict=True))
