"""The cases, each a function of a bench that adds rows to its report. `CASES` has them in the order of RING.md's table."""

from cases import exact, faults, lanes, memory, mixed, random_faults, security, speed, wire

CASES = {
    "bits": exact.bits,
    "goldens": exact.goldens,
    "network": exact.network,
    "lanes": lanes.lanes,
    "overhead": speed.overhead,
    "rows": speed.rows,
    "prompt": speed.prompt,
    "guesses": speed.guesses,
    "writers": speed.writers,
    "bytes": wire.per_token,
    "start": wire.start,
    "kill": faults.kill,
    "freeze": faults.freeze,
    "cable": faults.cable,
    "coordinator": faults.coordinator,
    "planner": speed.planner,
    "own-memory": memory.own,
    "cgroup": memory.cgroups,
    "big": memory.big,
    "mixed": mixed.mixed,
    "random": random_faults.random_faults,
    "security": security.security,
}
