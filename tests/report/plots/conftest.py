from __future__ import annotations

from importlib.util import find_spec

# Pictures need the extra `plot`.
collect_ignore = ["test_plots.py"] if find_spec("altair") is None else []
