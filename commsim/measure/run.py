"""From a plan to its records: with ranks started here, or as one of those a launcher started."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from commsim.errors import CommsimError, MeasureError
from commsim.measure.backend import missing, offers
from commsim.measure.launcher import launch
from commsim.measure.plan import Plan
from commsim.measure.rendezvous import Place, place
from commsim.measure.reporter import Reporter
from commsim.measure.worker import work

BAD_INPUT, CUT_SHORT = 2, 3  # exit codes, also of a rank that a launcher started


def ready(backend: str) -> None:
    """MeasureError, saying what to install, where a package of the backend is missing."""
    for package in offers(backend).packages:
        if importlib.util.find_spec(package) is None:
            raise MeasureError(missing(backend, f"the package {package} is not installed"))


def launched(n_ranks: int | None, env: Mapping[str, str] | None = None) -> Place | None:
    """This process's place among those that a launcher started; None where there is none, or where
    `n_ranks` are to be started here. Raises MeasureError where both are said."""
    found = place(os.environ if env is None else env)
    if n_ranks is None or found is None:
        return found
    if found.n_ranks > 1:
        raise MeasureError(
            f"--nproc: {found.launcher} has started {found.n_ranks} ranks already; leave it out"
        )
    return None


def measure(plan: Plan, at: Place | None, reporter: Reporter | None) -> None:
    """Carries out the plan; `reporter` (on rank 0, or where the ranks are started) is told.

    at: this rank's place; None: the ranks are started here. Raises MeasureError, BrokenRunError;
    but one of several ranks that a launcher started says so and ends its process.
    """
    ready(plan.settings.backend)
    try:
        if at is None:
            assert reporter is not None
            launch(plan, reporter)
        elif reporter is None:
            work(plan, at, lambda header: None, lambda index, records: None)
        else:
            work(plan, at, reporter.begin, reporter.done)
    except CommsimError as error:
        if at is not None and at.n_ranks > 1:
            _leave(error)
        raise
    finally:
        if reporter is not None:
            reporter.end()


def _leave(error: CommsimError) -> NoReturn:
    """Ends this process at once: an orderly end would wait for ranks that do not end."""
    for line in str(error).splitlines():
        print(f"commsim: {line}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(BAD_INPUT if isinstance(error, MeasureError) else CUT_SHORT)
