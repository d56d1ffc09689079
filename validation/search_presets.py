"""Writes commsim/libraries/nccl/searched.json: the slow graph searches of the presets.

Run `python -m validation.search_presets` after any change to the presets' machines or to the
search; a test compares some of it with a fresh search.
"""

from __future__ import annotations

import json
import sys
import time

from commsim.errors import CommsimError
from commsim.libraries.nccl import searched, settings
from commsim.libraries.nccl.communicator import Hosts, fresh_graphs
from commsim.topology.load import load_cluster, presets

SLOW = 0.1  # s
VERSIONS = tuple((2, minor) for minor in range(21, 31))


def questions() -> list[tuple[str, Hosts, bool]]:
    """(preset, machines of one domain, whether it is alone): whole nodes or racks of presets."""
    found = []
    for name in presets():
        cluster = load_cluster(name)
        every = tuple(range(cluster.gpus_per_node))
        hosts = (every,) * cluster.hosts_per_domain
        found += [(name, hosts, alone) for alone in (True, False)]
    return found


def main() -> None:
    """Searches and writes."""
    places: dict[str, int] = {}
    answers: list[str] = []
    for name, hosts, alone in questions():
        node = load_cluster(name).node
        if len(hosts) * len(hosts[0]) == 1 and alone:
            continue
        for version in VERSIONS:
            defaults = settings.read((), version, collnet=False)
            key = searched.key(node, hosts, version, defaults, alone, False)
            if key in places:
                continue
            start = time.process_time()
            try:
                graphs = fresh_graphs(node, hosts, version, defaults, alone, False)
            except CommsimError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            spent = time.process_time() - start
            if spent < SLOW:
                continue
            text = json.dumps(searched.pack(graphs), separators=(",", ":"))
            if text not in answers:
                answers.append(text)
            places[key] = answers.index(text)
            print(f"{name} {version} {alone}: {spent:.2f} s", file=sys.stderr)
    pairs = ",\n".join(f'"{key}":{place}' for key, place in sorted(places.items()))
    body = ",\n".join(answers)
    searched.FILE.write_text(f'{{"questions":{{\n{pairs}\n}},\n"answers":[\n{body}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main()
