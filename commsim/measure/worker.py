"""One rank's process, as `launcher` starts it: `python -m commsim.measure.worker PLAN FIFO`."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

from commsim.errors import BrokenRunError, CommsimError
from commsim.measure.backend import join
from commsim.measure.channel import Sender
from commsim.measure.follow import follow
from commsim.measure.plan import Plan
from commsim.measure.rendezvous import Place, place

PATIENCE = 2  # a library waits longer than the parent, which can say who hangs where
FAILED = 1  # a rank's own exit code; the command's codes are its parent's


def work(
    plan: Plan,
    at: Place,
    begin: Callable[[dict[str, Any]], None],
    done: Callable[[int, list[dict[str, Any]]], None],
) -> None:
    """This process as a rank that follows the plan; rank 0 tells what was measured."""
    backend = join(plan.settings.backend, at, PATIENCE * plan.settings.timeout)
    try:
        follow(plan, backend, begin, done)
    except (CommsimError, KeyboardInterrupt):
        raise
    except Exception as error:  # whatever a library raises: the others are gone, or it is broken
        raise BrokenRunError(f"rank {at.rank}: {type(error).__name__}: {error}") from error
    backend.close()


def main() -> int:
    """Runs as one of the ranks that a launcher of ours started."""
    plan = Plan.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    at = place(os.environ)
    assert at is not None
    errors = Path(sys.argv[1]).parent / f"rank{at.rank}.err"
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    errors.with_suffix(".pid").write_text(str(os.getpid()), encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # says where it hangs
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    sender = Sender(Path(sys.argv[2])) if at.rank == 0 else None
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    try:
        work(plan, at, sender.begin if sender else nothing, sender.done if sender else nothing)
        if sender is not None:
            sender.end()
    except BaseException as error:
        if not isinstance(error, CommsimError) or error.__cause__ is not None:
            traceback.print_exc()
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(FAILED)  # a library's threads or finalizers must not keep a broken rank alive
    return 0


def _leave_with(parent: int) -> None:
    """A rank whose parent is gone has nobody to measure for."""
    while os.getppid() == parent:
        sleep(1)
    os._exit(FAILED)


if __name__ == "__main__":
    sys.exit(main())
