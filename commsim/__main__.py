"""`python -m commsim` is the command `commsim`."""

from __future__ import annotations

from commsim.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
