"""The layers of ARCHITECTURE.md, read from the imports, and what else every module keeps to."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import commsim

PACKAGE = Path(commsim.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# Bottom up. A part imports from lower layers and, where that makes no circle, its neighbours.
LAYERS = (
    ("units", "errors"),
    ("topology",),
    ("collectives",),
    ("libraries", "cost", "engine"),
    ("prediction", "simulation", "advice"),
    ("workload",),
    (
        "calibration",
        "diagnosis",
        "measurements",
        "planning",
        "traces",
        "torch_backend",
        "measure",
        "report",
        "explore",
    ),
    ("cli",),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

# Third-party packages that only some parts may import.
ONLY_IN = {
    "torch": ("torch_backend", "measure", "traces/kineto.py"),
    "networkx": ("topology",),
    "simpy": ("engine",),
    "altair": ("report/plots",),
}
PRINTING = ("cli", "measure", "__main__.py")

# Any unit but the base units lives at an edge, and in NCCL's own tables.
WRITTEN_UNIT = re.compile(r"_(us|ms|ns|gb_per_s|gbit_per_s|kib|mib|gib|kb|mb|gb)$")
EDGES = ("units.py", "topology", "libraries/nccl", "traces", "report", "cli")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def within(path: Path, places: tuple[str, ...]) -> bool:
    name = name_of(path)
    return any(name == place or name.startswith(f"{place}/") for place in places)


def part_of(path: Path) -> str:
    """The folder or module directly under commsim/ that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@lru_cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: imports are absolute"
            if node.module == "commsim":
                yield from (f"commsim.{alias.name}" for alias in node.names)
            else:
                yield str(node.module)


def parts_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports_of(path) if name.startswith("commsim.")}


def test_every_part_has_a_layer() -> None:
    parts = {part_of(p) for p in MODULES} - {"__init__", "__main__"}
    assert parts <= LEVEL.keys()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    if part in ("__init__", "__main__") or path.name == "__main__.py":
        return  # an entry point stands above every layer
    for other in parts_imported(path):
        if other == "__version__":
            assert part in ("cli", "measure", "calibration")
            continue
        assert LEVEL[other] <= LEVEL[part], f"{name_of(path)} imports commsim.{other} from above"


def test_the_package_itself_imports_no_command() -> None:
    assert "cli" not in parts_imported(PACKAGE / "__init__.py")


def test_neighbours_in_a_layer_make_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        part = part_of(path)
        if part in LEVEL:
            same = {o for o in parts_imported(path) if LEVEL.get(o) == LEVEL[part] and o != part}
            graph.setdefault(part, set()).update(same)
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError naming the circle


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_packages_are_imported_only_where_they_belong(path: Path) -> None:
    for root in {name.split(".")[0] for name in imports_of(path)}:
        if root in ONLY_IN:
            assert within(path, ONLY_IN[root]), f"{name_of(path)} imports {root}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_commands_print_or_exit(path: Path) -> None:
    if within(path, PRINTING):
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "exit", "quit", "sys.exit", "os._exit"), (
                f"{name_of(path)}:{node.lineno}: {called}()"
            )


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_names_without_a_unit_are_in_base_units(path: Path) -> None:
    for line, name in names_in(path):
        assert "gbps" not in name.lower(), f"{name_of(path)}:{line}: {name}: bits or bytes?"
        if not within(path, EDGES):
            assert not WRITTEN_UNIT.search(name.lower()), f"{name_of(path)}:{line}: {name}"


def test_public_names_are_sorted_and_exist() -> None:
    names = commsim.__all__
    assert list(names) == sorted(set(names))
    assert all(not name.startswith("_") for name in names)
    for name in names:
        assert getattr(commsim, name).__name__ == name


def test_public_names_are_exactly_the_exported_ones() -> None:
    tree = tree_of(PACKAGE / "__init__.py")
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("commsim.")
        for alias in node.names
    }
    assert imported == set(commsim.__all__)
    assert set(commsim.__all__) <= set(dir(commsim))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = commsim.no_such_name


def imported_by(statement: str) -> tuple[set[str], float]:
    """Top-level packages loaded and seconds taken by a statement in a fresh interpreter."""
    script = (
        "import json, sys, time; start = time.process_time();"
        f"{statement}; took = time.process_time() - start;"
        "print(json.dumps([sorted({m.partition('.')[0] for m in sys.modules}), took]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    modules, took = json.loads(run.stdout)
    return set(modules), took


def test_import_commsim_is_light() -> None:
    modules, _ = imported_by("import commsim")
    assert not modules & {"torch", "matplotlib", "networkx", "scipy", "simpy", "pydantic", "typer"}


def test_import_commsim_is_fast() -> None:
    assert min(imported_by("import commsim")[1] for _ in range(3)) < 0.3
