"""The text that ibnetdiscover prints of a two-tier network, for tests."""


def discovered(
    hosts: int,
    nics: int,
    per_leaf: int,
    spines: int,
    *,
    up: int = 1,
    speed: str = "4xNDR",
    slow: dict[tuple[int, int], str] | None = None,
) -> str:
    """`hosts` machines node-1, node-2, ... with all NICs on one leaf; `up` cables to each spine."""
    ports: dict[str, list[tuple[str, int, str]]] = {}
    slow = slow or {}

    def cable(a: str, b: str, rate: str) -> None:
        at = len(ports.setdefault(a, [])) + 1, len(ports.setdefault(b, [])) + 1
        ports[a].append((b, at[1], rate))
        ports[b].append((a, at[0], rate))

    names = {}
    for h in range(hosts):
        leaf = f"S-{h // per_leaf:016x}"
        names[leaf] = f"MF0;leaf-{h // per_leaf}:MQM9700/U1"
        for i in range(nics):
            guid = f"H-{h * 64 + i:016x}"
            names[guid] = f"node-{h + 1} mlx5_{i}"
            cable(guid, leaf, slow.get((h, i), speed))
    for leaf in range(-(-hosts // per_leaf)):
        for s in range(spines):
            names[f"S-{0xFF00 + s:016x}"] = f"MF0;spine-{s}:MQM9700/U1"
            for _ in range(up):
                cable(f"S-{leaf:016x}", f"S-{0xFF00 + s:016x}", speed)
    out = ["#", "# Topology file: generated on Mon Nov 30 12:00:00 2026", "#", ""]
    for guid, of in ports.items():
        kind = "Switch" if guid[0] == "S" else "Ca"
        out += ["vendid=0x2c9", f'{kind}\t{len(of)} "{guid}"\t\t# "{names[guid]}" lid 3 lmc 0']
        for at, (far, port, rate) in enumerate(of, start=1):
            mark = "(0c42a10300000000)" if far[0] == "H" else ""
            own = "(0c42a10300000000)" if guid[0] == "H" else ""
            out.append(f'[{at}]{own}\t"{far}"[{port}]{mark}\t\t# "{names[far]}" lid 12 {rate}')
        out.append("")
    return "\n".join(out)
