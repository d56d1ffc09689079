"""One rank of the lab: runs a plan of operations and prints what each took, as JSON.

Started by validation.lab.run inside the rank's namespace, which tells by the environment who it is.
Every operation starts on all ranks at one time of the machine's own monotonic clock, which rank 0
names in advance; its duration, found by the reader of all ranks, is the last end minus that.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from validation.lab.network import sent_bytes
from validation.lab.sockets import acknowledged

LEAD = 10e-3  # s from a start's announcement to the start ...
LEAD_PER_RANK = 2e-3  # ... more where a few cores must wake many ranks


def main() -> None:
    plan = json.loads(sys.argv[1])
    backend = plan["backend"]
    if backend == "gloo":
        from validation.lab.with_gloo import Transport
    else:
        from validation.lab.with_mpi import Transport  # type: ignore[assignment]
    transport = Transport(plan["ranks"], max(case[1] for case in plan["cases"]))
    device = plan["device"]
    records = []
    for index, (op, nbytes, repeats, idle) in enumerate(plan["cases"]):
        act = transport.prepare(op, nbytes)
        for _ in range(repeats + 1):  # the first one opens connections: not counted
            records.append([index, *once(transport, act, device, idle)])
    start = announce(transport)
    pause(start)
    records.append([-1, *counts(device), start, start])
    transport.close()
    json.dump(records, sys.stdout)


def once(transport: Any, act: Any, device: str, idle: float) -> tuple[Any, ...]:
    """Bytes counted before the operation, its start and its end, s. idle: s of rest before it."""
    time.sleep(idle)
    start = announce(transport)
    before = counts(device)
    pause(start)
    act()
    return *before, start, time.monotonic()


def announce(transport: Any) -> float:
    """The time at which all ranks start, s: rank 0 chooses it once everyone has come so far."""
    transport.meet()
    return float(transport.tell(time.monotonic() + LEAD + LEAD_PER_RANK * transport.n))


def pause(until: float) -> None:
    time.sleep(max(0.0, until - time.monotonic()))


def counts(device: str) -> tuple[int, dict[str, int]]:
    """Bytes the device sent, and bytes each peer has acknowledged, so far."""
    return (sent_bytes(device) if device else 0), acknowledged()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
