"""`torchrun --nproc-per-node 4 -m commsim.measure OP ...`: the command `commsim measure`.

An entry point stands above every layer, as commsim/__main__.py does.
"""

from __future__ import annotations

import sys

from commsim.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "measure")
    sys.exit(main())
