"""Speeds of rings in times those of one machine, and plans beside what became of them.

Every machine has one thread on a CPU of its own, so two stages need two. Rounds go through what is compared in turn;
a ratio is the median of the rounds' ratios. s is what two processes that know nothing of each other reach together, in
times one: two virtual CPUs may share a core, and they share the memory.
"""

import statistics
import threading

import writers as clients
from bench import LEAD, Bench, World, median_ratio
from programs import Failure
from report import Row
from world import Run

P, CHUNK = 1024, 64


def two_machines(bench: Bench, world: World, *options: str) -> list[str]:
    """The coordinator on CPU 0 and a node on CPU 1; the options of a ring of both that halves the layers."""
    world.machine(LEAD, cpus="0")
    world.machine("pi1", cpus="1")
    world.node("pi1", *options, models=bench.models)
    return ["--ring=pi1", "--ring-for", "prompt"]


def rate(run, key: str) -> float:
    value = run.stats.get(key)
    if not value:
        raise Failure(f"no {key} in --stats-json")
    return value


def overhead(bench: Bench) -> None:
    """One writer on two stages, against one process."""
    n = bench.options.tokens or 128
    with bench.world() as world:
        ring = two_machines(bench, world)
        world.run(bench.text(8), ring)
        bench.begin_timing()
        values = bench.rounds({
            "ring": lambda: world.run(bench.text(n), ring),
            "alone": lambda: world.run(bench.text(n)),
        })  # fmt: skip
    ring_rate, alone_rate = ([rate(run, "decode_tok_s") for run in values[name]] for name in ("ring", "alone"))
    ratio = median_ratio(ring_rate, alone_rate)
    layers = values["ring"][0].layers
    number = f"{ratio:.3f} ({statistics.median(ring_rate):.1f} and {statistics.median(alone_rate):.1f} tokens/s; {split(layers)})"
    is_equal = all(run.text == values["alone"][0].text for run in values["ring"])
    numbers = {"ring_tok_s": ring_rate, "alone_tok_s": alone_rate, "layers": layers}
    if not is_equal:
        raise Failure("the text on the ring is another one")
    bench.report.add(
        Row(
            "overhead",
            "one writer, 2 stages × 1 thread, in times one process",
            number,
            "≥ 0.97",
            "llama.cpp RPC: not run here",
            ratio >= 0.97,
            bench.load,
            numbers=numbers,
        )
    )


def rows(bench: Bench) -> None:
    """One writer on two nodes that share every layer by rows, against one process with one thread and with two."""
    n = bench.options.tokens or 128
    with bench.world() as world:
        world.machine(LEAD)
        for cpu, name in enumerate(["pi1", "pi2"]):
            world.machine(name, cpus=str(cpu))
            world.node(name, models=bench.models)
        ring = ["--ring=pi1,pi2", "--split", "rows"]
        world.run(bench.text(8), ring)
        bench.begin_timing()
        values = bench.rounds({
            "ring": lambda: world.run(bench.text(n), ring),
            "one": lambda: world.run(bench.text(n)),
            "two": lambda: world.run(bench.text(n, "-j", "2")),
        })  # fmt: skip
    if any(run.text != values["one"][0].text for runs in values.values() for run in runs):
        raise Failure("a text is another one")
    rates = {name: [rate(run, "decode_tok_s") for run in runs] for name, runs in values.items()}
    ratio, threads = median_ratio(rates["ring"], rates["one"]), median_ratio(rates["two"], rates["one"])
    bench.report.add(
        Row(
            "rows",
            "one writer, 2 nodes × 1 thread by rows, in times one process × 1 thread",
            f"{ratio:.2f} (two threads: {threads:.2f})",
            f"≥ {0.8 * threads:.2f} = 0.8 × two threads",
            "",
            ratio >= 0.8 * threads,
            bench.load,
            numbers=rates,
        )
    )


def split(layers: dict[str, int]) -> str:
    return "layers " + " + ".join(str(n) for n in layers.values())


def guesses(bench: Bench) -> None:
    """A text that repeats itself, written by windows of guesses on two stages."""
    n = bench.options.tokens or 128
    greedy = ["--temp", "0"]
    guessing = [*greedy, "--speculate", "ngram,k=3,always"]
    with bench.world() as world:
        ring = two_machines(bench, world)
        world.run(bench.text(8), ring)
        bench.begin_timing()
        values = bench.rounds({
            "ring": lambda: world.run(bench.text(n, *greedy, "--speculate", "off"), ring),
            "ring-guesses": lambda: world.run(bench.text(n, *guessing), ring),
            "alone": lambda: world.run(bench.text(n, *greedy, "--speculate", "off")),
            "alone-guesses": lambda: world.run(bench.text(n, *guessing)),
        })  # fmt: skip
    if any(run.text != values["alone"][0].text for runs in values.values() for run in runs):
        raise Failure("a text is another one")
    rates = {name: [rate(run, "decode_tok_s") for run in runs] for name, runs in values.items()}
    on_ring, alone = (median_ratio(rates[name + "-guesses"], rates[name]) for name in ("ring", "alone"))
    stats = values["ring-guesses"][0].stats["speculation"]
    share = stats["accepted_tokens"] / max(stats["drafted_tokens"], 1)
    bench.report.add(
        Row(
            "guesses",
            "a text that repeats itself, guesses of 3 tokens, in times no guesses",
            f"{on_ring:.2f} on 2 stages, {alone:.2f} in one process ({share:.0%} of the guesses right)",
            "more on the ring",
            "",
            on_ring > alone,
            bench.load,
            numbers={**rates, "speculation": stats},
        )
    )


def prompt_command(bench: Bench) -> list[str]:
    what = ["bench", bench.options.model, "-p", str(P), "-n", "0", "-r", "1", "-j", "1", "-c", str(P + 64)]
    return [*what, "--batch", str(CHUNK), "--json"]


def prompt(bench: Bench) -> None:
    """A prompt of 1,024 tokens in chunks of 64 on two stages."""
    command = prompt_command(bench)

    def prefill(run) -> float:
        return clients.read_json_text(run.text)["prefill_tok_s"]

    with bench.world() as world:
        ring = two_machines(bench, world)
        world.run(command, ring)
        bench.begin_timing()
        values = bench.rounds({
            "ring": lambda: prefill(world.run(command, ring)),
            "alone": lambda: prefill(world.run(command)),
            "pair": lambda: sum(prefill(run) for run in side_by_side(world, command)),
        })  # fmt: skip
    ratio, s = median_ratio(values["ring"], values["alone"]), median_ratio(values["pair"], values["alone"])
    n_chunks = P // CHUNK
    ideal = n_chunks * 2 / (n_chunks + 1)
    target = 0.9 * ideal * s / 2
    bench.report.add(
        Row(
            "prompt",
            f"{P} tokens, c = {CHUNK}, 2 stages, in times one process",
            f"{ratio:.2f} (s = {s:.2f})",
            f"≥ {target:.2f} = 0.9 × {ideal:.2f} × s / 2",
            "RPC async 1.26–1.47 (GPUs)",
            ratio >= target,
            bench.load,
            numbers=values,
        )
    )


def side_by_side(world: World, command: list[str]) -> list:
    """Two runs of a command at the same time, one on each machine."""
    programs = [world.start(world.machines[name], command) for name in (LEAD, "pi1")]
    for program in programs:
        if program.end(600) != 0:
            raise Failure(f"side by side: {program.said[-400:]}")
    return [Run(program, {}) for program in programs]


def writers(bench: Bench) -> None:
    """Eight clients of `atta serve`, on two stages and on one machine."""
    n = bench.options.tokens or 64
    with bench.world() as world:
        ring = two_machines(bench, world)
        bench.begin_timing()

        def served(options: list[str] | None, n_clients: int) -> clients.Served:
            return clients.serve(bench, world, options, n_clients, n)

        values = bench.rounds({
            "ring": lambda: served(ring[:1] + ["--ring-for", "users"], 8),
            "alone": lambda: served(None, 8),
            "four": lambda: served(None, 4),
        })  # fmt: skip
    texts = values["alone"][0].texts
    if any(run.texts != texts for run in values["ring"] + values["alone"]):
        raise Failure("a text on the ring is another one")
    tok_s = {name: [run.tok_s for run in values[name]] for name in ("ring", "alone", "four")}
    ratio = median_ratio(tok_s["ring"], tok_s["alone"])
    # c(n) is the time of a batch of n rows, so c(8)/c(4) = 2 × tokens/s of four by tokens/s of eight.
    c = bench.options.c4_c8 or 2 * median_ratio(tok_s["four"], tok_s["alone"])
    s = world_s(bench)
    target = 0.9 * c * s / 2
    numbers = {**tok_s, "c8_c4": c, "s": s}
    number = f"{ratio:.2f} ({statistics.median(tok_s['ring']):.0f} and {statistics.median(tok_s['alone']):.0f} tokens/s)"
    bench.report.add(
        Row(
            "writers",
            "8 clients of `atta serve`, 2 stages, in times one process",
            number,
            f"≥ {target:.2f} = 0.9 × c(8)/c(4) × s / 2, c(8)/c(4) = {c:.2f}, s = {s:.2f}",
            "",
            ratio >= target,
            bench.load,
            numbers=numbers,
        )
    )


def world_s(bench: Bench) -> float:
    """Two processes that write, in times one."""
    command = ["bench", bench.options.model, "-p", "0", "-n", "64", "-r", "1", "-j", "1", "--json"]

    def decode(run) -> float:
        return clients.read_json_text(run.text)["decode_tok_s"]

    with bench.world() as world:
        world.machine(LEAD, cpus="0")
        world.machine("pi1", cpus="1")
        values = bench.rounds({
            "alone": lambda: decode(world.run(command)),
            "pair": lambda: sum(decode(run) for run in side_by_side(world, command)),
        })  # fmt: skip
    return median_ratio(values["pair"], values["alone"])


def planner(bench: Bench) -> None:
    """What plans say of speed and memory beside what became of it, and plans that must be of a kind."""
    n = bench.options.tokens or 128
    with bench.world() as world:
        ring = two_machines(bench, world)
        node = world.programs[-1]
        world.run(bench.text(8), ring)
        options = ["--nodes", "pi1", "--for", "prompt", "-c", "1024", "-j", "1"]
        plan = world.planned(bench.options.model, *options)
        bench.begin_timing()
        peak = Peak(node)
        runs = bench.rounds({"ring": lambda: world.run(bench.text(n), ring)})["ring"]
        resident = peak.end()
    measured = statistics.median(rate(run, "decode_tok_s") for run in runs)
    # `--for prompt` expects the speed of a prompt; the plan has both.
    expected = plan["decode_tok_s"]
    number = f"{measured:.1f} tokens/s, planned {expected:.1f} ({expected / measured - 1:+.0%})"
    bench.report.add(
        Row(
            "planner",
            "speed of a text",
            number,
            "within 10 %",
            "prima: no check",
            abs(expected / measured - 1) <= 0.1,
            bench.load,
            numbers={"plan": plan, "tok_s": measured},
        )
    )
    planned = next(machine["ram_bytes"] for machine in plan["machines"] if machine["node"] == "pi1")
    number = f"{resident / 1e6:.0f} MB of weights and private memory, planned {planned / 1e6:.0f} MB ({planned / resident - 1:+.0%})"
    # A plan has 12 MiB for any node, which is much beside a small model.
    is_near = abs(planned / resident - 1) <= 0.1 or 0 <= planned - resident <= 16 << 20
    numbers = {"resident": resident, "plan": planned}
    bench.report.add(Row("planner", "memory of the node", number, "within 10 %, or 16 MiB less", "", is_near, numbers=numbers))
    prepared(bench)


class Peak:
    """The most memory that a program holds while others use it: private memory, and pages of the model."""

    def __init__(self, program):
        self.program, self.most, self.is_over = program, 0, threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        while not self.is_over.wait(0.2):
            private = self.program.status().get("RssAnon", 0)
            self.most = max(self.most, private + self.program.mapped(".gguf"))

    def end(self) -> int:
        self.is_over.set()
        self.thread.join()
        return self.most


def prepared(bench: Bench) -> None:
    """A case each in which the planner must use a ring, leave one out, and refuse."""
    found = {}
    with bench.world() as world:
        world.machine(LEAD)
        world.machine("pi1")
        world.machine("pi2")
        world.node("pi1", models=bench.models)
        budgets = budgets_of(world, bench)
        # With much faster a coordinator, no node helps.
        world.believe(LEAD, 50)
        alone = world.planned(bench.options.model, "-j", "1")
        found["drop"] = alone["is_alone"] and any("would not help" in idle["why"] for idle in alone["idle"])
        short = ["-j", "1", "--ram-budget", f"{budgets['half']}B"]
        found["ring"] = not world.planned(bench.options.model, *short)["is_alone"]
        world.programs[-1].kill()
        run = world.attempt(["cluster", "plan", bench.options.model, *short, "--nodes", "pi2", "--ram-budget", f"{budgets['none']}B"])
        found["refuse"] = run.code == 1
    wrong = [kind for kind, is_right in found.items() if not is_right]
    number = ", ".join(kind for kind in found if kind not in wrong) + (f"; wrong: {', '.join(wrong)}" if wrong else "")
    bench.report.add(Row("planner", "prepared cases", number, "drop, ring, refuse", "", not wrong, numbers=found))


def budgets_of(world: World, bench: Bench) -> dict[str, int]:
    """Memory of the coordinator in which half of the layers fit, and in which nothing does."""
    plan = world.planned(bench.options.model, "-j", "1")
    machine = plan["machines"][0]
    fixed = machine["ram_bytes"] - machine["resident_bytes"] - machine["kv_bytes"]
    return {"half": machine["ram_bytes"] - machine["resident_bytes"] // 4, "none": fixed // 4}
