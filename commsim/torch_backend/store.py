"""The key-value store of a job, which all ranks share: a dict, and a baton to wait with."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commsim.torch_backend import private
from commsim.torch_backend.where import where
from commsim.torch_backend.world import Rank, World


class SharedStore(private.Store):
    """What torch.distributed, and scripts, keep in a TCPStore."""

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self._rank = rank
        self._world: World = rank.world

    def set(self, key: str, value: Any) -> None:
        self._world.put(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        self._world.await_key(self._rank, key, where())
        value: bytes = self._world.store[key]
        return value

    def add(self, key: str, value: int) -> int:
        total = int(self._world.store.get(key, b"0")) + value
        self.set(key, str(total))
        return total

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        for key in keys:
            self._world.await_key(self._rank, key, where())

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._world.store for key in keys)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        expected = expected.encode() if isinstance(expected, str) else bytes(expected)
        held = self._world.store.get(key)
        if (held is None and not expected) or held == expected:
            self.set(key, desired)
        value: bytes = self._world.store.get(key, expected)
        return value

    def delete_key(self, key: str) -> bool:
        return self._world.store.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._world.store)

    def set_timeout(self, timeout: Any) -> None:
        """Nothing times out: a deadlock is known without."""
