"""The lanes beside each other: texts over TCP, UDP and AF_XDP, by layers and by rows, on good and bad links."""

import itertools

from bench import Bench
from lan import Link
from report import Row
from world import LEAD

NODES = ["pi1", "pi2"]
N_TOKENS = 96
LANES = ["tcp", "udp", "afxdp"]


def lanes(bench: Bench) -> None:
    """Texts over each lane, by layers and by rows, with delay and loss."""
    for link in [Link(), Link(delay_ms=5), Link(delay_ms=5, loss_percent=1)]:
        with bench.world() as world:
            world.machine(LEAD)
            for name in NODES:
                world.machine(name, link=link)
                world.node(name, models=bench.models)
            alone = world.run(bench.text(bench.options.tokens or N_TOKENS))
            for split, lane in itertools.product(["layers", "rows"], LANES):
                ring = ["--ring=pi1,pi2", "--split", split, "--lane", lane]
                run = world.run(bench.text(bench.options.tokens or N_TOKENS), ring)
                times = [time for time, _ in run.program.chunks]
                pause = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
                rate = run.stats.get("decode_tok_s", 0.0)
                # By another way the text would be equal, too.
                went = not any("; going by " in program.said for program in world.programs)
                number = f"{rate:.1f} tokens/s, longest pause {pause:.2f} s"
                numbers = {"decode_tok_s": rate, "longest_pause_s": pause}
                what = f"{link}, {split}, {lane}"
                bench.report.add(Row("lanes", what, number, "equal text", "", run.text == alone.text and went, numbers=numbers))
