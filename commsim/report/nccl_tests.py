"""Predictions as the table that nccl-tests prints, so that they can be laid beside a measured log.

Same columns in the same places (NVIDIA nccl-tests 2.13 and later, src/common.cu: size, count, type,
redop, root, time in us, algbw and busbw in GB/s of 10^9 bytes, #wrong), out-of-place only; `#wrong`
is N/A, as nothing was run. Behind them the interval, the algorithm, protocol and channels.
"""

from __future__ import annotations

from collections.abc import Iterable

from commsim.collectives.collective import REDUCTIONS, ROOTED, SHARED, Collective
from commsim.errors import CollectiveError
from commsim.prediction import Prediction
from commsim.units import Bytes

TYPE_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
TYPE_NAMES |= {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
BINARIES = {"all_to_all": "alltoall", "send_recv": "sendrecv"}


def sizes(
    low: Bytes, high: Bytes, *, factor: int = 2, step: Bytes | None = None
) -> tuple[Bytes, ...]:
    """Bytes from `low` to `high`: times `factor` (nccl-tests' -f), or plus `step` (-i)."""
    if high < low:
        raise CollectiveError(f"sweep: expected -e of at least -b, got -b {low} and -e {high}")
    if step is None and (factor < 2 or low < 1):
        raise CollectiveError(
            f"sweep: expected -f of 2 or more from -b of 1 or more, got -f {factor} from -b {low}"
        )
    if step is not None and step < 1:
        raise CollectiveError(f"sweep: expected -i of 1 byte or more, got {step}")
    found = [low]
    while (following := found[-1] * factor if step is None else found[-1] + step) <= high:
        found.append(following)
    return tuple(found)


def whole(operation: str, nbytes: Bytes, itemsize: Bytes, n: int) -> Bytes:
    """The bytes moved when `nbytes` are asked for: whole elements, as many on each rank."""
    if operation == "barrier":
        return 0
    grain = itemsize * n if operation in SHARED else itemsize
    return nbytes // grain * grain


def header(prediction: Prediction, left_out: int = 0) -> tuple[str, ...]:
    """The comment lines above the rows: what was asked, and the names and units of the columns."""
    operation, cluster, library = (
        prediction.collective.operation, prediction.cluster, prediction.library,
    )  # fmt: skip
    binary = BINARIES.get(operation, operation)
    lines = [
        f"# {binary} predicted by commsim, not measured",
        f"# {cluster.name}: {prediction.n_ranks} ranks on {cluster.nodes} x {cluster.gpus_per_node}"
        f" {cluster.gpu.name}, {library.name} {library.version}",
    ]
    if left_out:
        lines.append(f"# {left_out} smaller sizes left out: less than one element for each rank")
    lines += [
        "#",
        f"# {'':59}out-of-place{'':21}80 % interval",
        f"#{'size':>11}{'count':>14}{'type':>10}{'redop':>8}{'root':>8}"
        f"{'time':>9}{'algbw':>8}{'busbw':>8}{'#wrong':>8}{'low':>9}{'high':>9}"
        f"  {'algorithm':<15}{'protocol':<9}{'channels':>8}",
        f"#{'(B)':>11}{'(elements)':>14}{'':26}{'(us)':>9}{'(GB/s)':>8}{'(GB/s)':>8}{'':8}"
        f"{'(us)':>9}{'(us)':>9}",
    ]
    return tuple(line.rstrip() for line in lines)


def row(prediction: Prediction) -> str:
    """One size: nccl-tests' figures, then low and high in us, algorithm, protocol, channels."""
    collective = prediction.collective
    low, high = prediction.interval
    return (
        f"{collective.nbytes:>12}{count(collective, prediction.n_ranks):>14}"
        f"{TYPE_NAMES.get(collective.dtype, collective.dtype):>10}"
        f"{collective.reduce_op if collective.operation in REDUCTIONS else 'none':>8}"
        f"{(collective.root or 0) if collective.operation in ROOTED else -1:>8}"
        f"{_short(prediction.duration * 1e6):>9}"
        f"{prediction.algorithm_bandwidth / 1e9:>8.2f}{prediction.bus_bandwidth / 1e9:>8.2f}"
        f"{'N/A':>8}{_short(low * 1e6):>9}{_short(high * 1e6):>9}"
        f"  {prediction.algorithm:<15}{prediction.protocol or '-':<9}{prediction.channels:>8}"
    )


def footer(predictions: Iterable[Prediction]) -> str:
    """The last line: the mean of the bus bandwidths, GB/s."""
    bandwidths = [p.bus_bandwidth / 1e9 for p in predictions]
    return f"# Avg bus bandwidth    : {sum(bandwidths) / len(bandwidths):.6g}"


def count(collective: Collective, n: int) -> int:
    """Elements as nccl-tests counts them: of one rank's part where the size is a total."""
    elements = collective.nbytes // collective.itemsize
    return elements // n if collective.operation in SHARED else elements


def _short(number: float) -> str:
    """Digits that fit eight columns, as nccl-tests shortens its times."""
    for limit, places in ((1e4, 2), (1e5, 1), (1e8, 0)):
        if number < limit:
            return f"{number:.{places}f}"
    return f"{number:.2e}"
