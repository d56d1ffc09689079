"""One process that answers, one question at a time: killed and replaced when it takes too long.

A thread cannot be stopped; a process can, and takes its memory with it.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

from commsim.errors import CommsimError, ExploreError, TimeLimitError
from commsim.units import Seconds

REST = 0.3
"""s without a question after which something is reckoned ahead."""
DONE = object()


class Worker:
    """Answers questions in a process of its own, each in `limit` s at most."""

    def __init__(self, limit: Seconds) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, kind: str, question: Mapping[str, Any], limit: Seconds | None = None) -> Any:
        """The answer. Raises ExploreError for a bad question, TimeLimitError after `limit` s."""
        limit = self.limit if limit is None else limit
        if not self._lock.acquire(timeout=limit):
            raise TimeLimitError(f"{kind}: earlier questions took {limit:g} s; ask again")
        try:
            answered, result = self._answer(kind, question, limit)
        finally:
            self._lock.release()
        if not answered:
            raise ExploreError(result)
        return result

    def _answer(self, kind: str, question: Mapping[str, Any], limit: Seconds) -> tuple[bool, Any]:
        try:
            self._pipe.send((kind, question))
            if self._pipe.poll(limit):
                found: tuple[bool, Any] = self._pipe.recv()
                return found
        except (EOFError, OSError):
            self._replace()
            raise ExploreError(
                f"{kind}: the process that answers has died (out of memory?); ask for less"
            ) from None
        self._replace()
        raise TimeLimitError(
            f"{kind}: no answer in {limit:g} s; ask for fewer nodes or sizes, or ask the command"
            " line, which waits"
        )

    def _replace(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    """Answers until the other end is closed; in between it reckons what may be asked next."""
    try:
        _answer_all(pipe)
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _answer_all(pipe: Connection) -> None:
    from commsim.explore.ahead import around, every_preset
    from commsim.explore.answers import ANSWERS, one_line

    ahead: Iterator[None] = iter(())
    catalogue = every_preset()
    while True:
        pause = REST
        while not pipe.poll(pause):
            pause = 0.0
            if next(ahead, DONE) is DONE and next(catalogue, DONE) is DONE:
                break  # nothing is left to be reckoned: wait for the next question
        kind, question = pipe.recv()
        if kind == "collective":
            ahead = around(question)
        try:
            pipe.send((True, ANSWERS[kind](question)))
        except CommsimError as error:
            pipe.send((False, one_line(error)))
        except Exception as error:  # a fault of ours: the page says so and goes on
            pipe.send((False, f"{kind}: {type(error).__name__}: {error}"))
