"""Text with a unit to base units and back. Inside commsim: seconds, bytes, bytes per second.

`450GB/s` is 10^9 bytes per second, `400Gbit/s` is 10^9 bits, `256MiB` is 2^20 bytes.
Sizes also take nccl-tests' short form, where K, M, G are powers of two: `1G` is 1 GiB.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from commsim.errors import UnitError

Seconds: TypeAlias = float
Bytes: TypeAlias = int
BytesPerSecond: TypeAlias = float

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_NUMBER = re.compile(r"\s*([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?\.\d+)\s*([A-Za-zµ/]*)\s*")
_SIZES: dict[str, int] = {"": 1, "b": 1}
for _i, _p in enumerate("kmgtp", start=1):
    _SIZES |= {_p: 1024**_i, f"{_p}ib": 1024**_i, f"{_p}b": 1000**_i}
_RATES: dict[str, float] = {}
for _i, _p in enumerate(["", "k", "m", "g", "t"]):
    _RATES |= {f"{_p}b/s": 1000.0**_i, f"{_p}bit/s": 1000.0**_i / 8}
    _RATES |= {f"{_p}ib/s": 1024.0**_i} if _p else {}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if not match:
        raise UnitError(f'expected {what} such as "{example}", got {text!r}')
    return float(match[1]), match[2]


def parse_size(text: str | int) -> Bytes:
    """Bytes from `1GiB`, `1G` (2^30, as nccl-tests), `1GB` (10^9) or `8`."""
    if isinstance(text, int):
        number, unit = float(text), ""
    else:
        number, unit = _split(text, "a size", "256MiB")
    factor = _SIZES.get(unit.lower())
    if factor is None:
        raise UnitError(f'expected a size such as "256MiB", "1G" or "8", got {text!r}')
    size = number * factor
    if size < 0 or size != int(size):
        raise UnitError(f"expected a whole number of bytes that is not negative, got {text!r}")
    return int(size)


def parse_rate(text: str) -> BytesPerSecond:
    """Bytes per second from `450GB/s` or `400Gbit/s`; a bare number is refused."""
    if not isinstance(text, str):
        raise UnitError(
            f'expected a rate with its unit such as "450GB/s" or "400Gbit/s", got {text!r}'
        )
    number, unit = _split(text, "a rate", "450GB/s")
    if unit[-4:] == "Gbps" or unit.lower().endswith("bps"):
        raise UnitError(f'{text!r}: bits or bytes? write "Gbit/s" or "GB/s"')
    factor = _RATES.get(unit.lower())
    if factor is None:
        raise UnitError(
            f'expected a rate with its unit such as "450GB/s" or "400Gbit/s", got {text!r}'
        )
    if number < 0:
        raise UnitError(f"expected a rate that is not negative, got {text!r}")
    return number * factor


def parse_time(text: str) -> Seconds:
    """Seconds from `2.5us`, `10ms` or `1s`; a bare number is refused."""
    if not isinstance(text, str):
        raise UnitError(f'expected a time with its unit such as "2.5us", got {text!r}')
    number, unit = _split(text, "a time", "2.5us")
    if unit not in _TIMES or number < 0:
        raise UnitError(f'expected a time with its unit such as "2.5us", got {text!r}')
    return number * _TIMES[unit]


def format_size(nbytes: Bytes) -> str:
    """`1 MiB`, `1.5 GiB`, `8 B`."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.4g} {unit}"
        size /= 1024
    raise AssertionError


def format_rate(rate: BytesPerSecond) -> str:
    """`450 GB/s` (10^9)."""
    return f"{rate / 1e9:.4g} GB/s"


def format_time(duration: Seconds) -> str:
    """`12.3 us`, `4.56 ms`, `1.2 s`."""
    for unit, factor in (("us", 1e-6), ("ms", 1e-3)):
        if duration < 1000 * factor:
            return f"{duration / factor:.4g} {unit}"
    return f"{duration:.4g} s"
