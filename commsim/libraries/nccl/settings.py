"""The NCCL_* variables that shape graphs and channels, read once into one record."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.errors import LibraryError
from commsim.libraries.nccl.graph import PathType

Version = tuple[int, int]

OLDEST, NEWEST = (2, 18), (2, 30)
_LEVEL_NUMBERS = (PathType.LOC, PathType.PIX, PathType.PXB, PathType.PHB, PathType.SYS)


def modelled(version: tuple[int, ...]) -> Version:
    """The modelled minor version nearest to this one: 2.18 to 2.30."""
    return min(max((version[0], version[1]), OLDEST), NEWEST)


def max_channels(version: Version) -> int:
    """MAXCHANNELS of this version."""
    return 64 if version >= (2, 25) else 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every variable that this model honours; None where unset and the default depends on the
    machine.
    """

    min_channels: int = 0
    max_channels: int = 1 << 30
    nvls: bool = True
    p2p_level: PathType | None = None
    cross_nic: int = 2
    gdr_level: PathType | None = None
    gdr_read: int | None = None
    gdr_c2c: bool = True
    pxn: bool = True
    pxn_c2c: bool = True
    nvb: bool = True
    shm: bool = True
    net_intra: bool = True
    nvls_channels: int | None = None
    collnet: bool = False
    min_p2p_channels: int = 1
    max_p2p_channels: int = 1 << 30
    channels_per_net_peer: int | None = None
    nic_filter: str = ""


def read(env: tuple[tuple[str, str], ...], version: Version, collnet: bool) -> Settings:
    """Settings from (name, value) pairs; a value NCCL could not use raises LibraryError."""
    values = dict(env)

    def number(names: str, default: int) -> int:
        for name in names.split():
            if name in values:
                try:
                    return int(values[name], 0)
                except ValueError:
                    raise LibraryError(
                        f"{name}: found {values[name]!r}, expected a whole number;"
                        " correct or unset it"
                    ) from None
        return default

    def optional(name: str) -> int | None:
        value = number(name, -2)
        return None if value in (-1, -2) else value

    def level(name: str) -> PathType | None:
        text = values.get(name)
        if text is None:
            return None
        if text.lstrip("-").isdigit():
            place = int(text)
            return _LEVEL_NUMBERS[min(max(place, 0), len(_LEVEL_NUMBERS) - 1)]
        known = [t.name for t in PathType if t <= PathType.SYS]
        if text.upper() not in known:
            raise LibraryError(
                f"{name}: found {text!r}, expected one of {', '.join(known)}; correct or unset it"
            )
        return PathType[text.upper()]

    def positive(names: str, default: int) -> int:
        value = number(names, default)
        return value if value > 0 else default

    cross = number("NCCL_CROSS_NIC", 2)
    if cross not in (0, 1, 2):
        raise LibraryError(
            f"NCCL_CROSS_NIC: found {cross}, expected 0, 1 or 2; correct or unset it"
        )
    p2p_level = level("NCCL_P2P_LEVEL")
    if number("NCCL_P2P_DISABLE", 0) == 1:
        p2p_level = PathType.LOC
    return Settings(
        min_channels=positive("NCCL_MIN_CTAS NCCL_MIN_NCHANNELS NCCL_MIN_NRINGS", 0),
        max_channels=positive("NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MAX_NRINGS", 1 << 30),
        nvls=number("NCCL_NVLS_ENABLE", 2) != 0,
        p2p_level=p2p_level,
        cross_nic=cross,
        gdr_level=level("NCCL_NET_GDR_LEVEL"),
        gdr_read=optional("NCCL_NET_GDR_READ"),
        gdr_c2c=number("NCCL_NET_GDR_C2C", int(version >= (2, 27))) != 0,
        pxn=number("NCCL_PXN_DISABLE", 0) != 1,
        pxn_c2c=number("NCCL_PXN_C2C", int(version >= (2, 28))) != 0,
        nvb=number("NCCL_NVB_DISABLE", 0) != 1,
        shm=number("NCCL_SHM_DISABLE", 0) != 1,
        net_intra=number("NCCL_NET_DISABLE_INTRA", 0) != 1,
        nvls_channels=optional("NCCL_NVLS_NCHANNELS"),
        collnet=number("NCCL_COLLNET_ENABLE", int(collnet)) == 1,
        min_p2p_channels=positive("NCCL_MIN_P2P_NCHANNELS", 1),
        max_p2p_channels=positive("NCCL_MAX_P2P_NCHANNELS", 1 << 30),
        channels_per_net_peer=optional("NCCL_NCHANNELS_PER_NET_PEER"),
        nic_filter=values.get("NCCL_IB_HCA", ""),
    )
