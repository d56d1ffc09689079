"""The handles that torch.distributed gives for operations under way."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from commsim.torch_backend import private
from commsim.torch_backend.records import Post
from commsim.torch_backend.world import World

HERE = threading.local()  # .eager: a Future must be complete before C++ gets it


def eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; Futures made within are complete, for callers that wait for them at once."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        HERE.eager = True
        try:
            return function(*args, **kwargs)
        finally:
            HERE.eager = False

    return call


class SimulatedWork(private.Work):
    """One rank's part of an operation. `wait` returns when the data is there."""

    def __init__(self, world: World, post: Post, result: list[torch.Tensor]) -> None:
        super().__init__()
        self._world, self._post, self._result = world, post, result
        self._future: LazyFuture | None = None
        self._lists: Sequence[Sequence[torch.Tensor]] = ()

    def stack(self, lists: Sequence[Sequence[torch.Tensor]]) -> None:
        """Have `result` and the Future give each list of equal tensors as one, as NCCL's do."""
        if all(len({tensor.shape for tensor in each}) == 1 for each in lists):
            self._lists = lists

    def wait(self, timeout: Any = None) -> bool:
        self._world.wait(self._post)
        self._world.ranks[self._post.call.rank].handles.waited(self)
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Is it over by now? Asking lets the others go on, and takes until it is over."""
        rank = self._world.ranks[self._post.call.rank]
        if not self._post.done:
            self._world.baton.poll(rank, self._post)
        if self._post.done:
            self._world.settle(self._post)
            rank.clock.host = max(rank.clock.host, self._post.end)
        return self._post.done

    def is_success(self) -> bool:
        return self.is_completed()

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        self._world.await_end(self._post)
        return self._value()

    def source_rank(self) -> int:
        """The place of the sender in the group."""
        self._world.await_end(self._post)
        sender = self._post.operation.of("send").call
        return sender.group.ranks.index(sender.rank)

    _source_rank = source_rank

    def get_future(self) -> LazyFuture:
        """A Future of the result.

        DDP waits for it in C++, at the end of the backward pass and on this very thread. A callback
        queued before DDP's own waits instead, where others can run meanwhile.
        """
        if self._future is None:
            self._future = LazyFuture(self._complete)
            self._world.settle(self._post)
            if getattr(HERE, "eager", False):
                self._future.complete()
            elif private.in_backward():
                private.after_backward(self._future.complete)
        return self._future

    def _complete(self) -> list[torch.Tensor]:
        self.wait()
        return self._value()

    def _value(self) -> list[torch.Tensor]:
        return [torch.stack(tuple(each)) for each in self._lists] or self._result


class LazyFuture(torch.futures.Future[Any]):
    """A Future that computes its value when it is first asked for."""

    def __init__(self, compute: Callable[[], Any], parent: LazyFuture | None = None) -> None:
        super().__init__()
        self._compute, self._parent = compute, parent

    def complete(self) -> None:
        """Compute the value and call what was chained to it, unless that has happened."""
        if self._parent is not None:
            self._parent.complete()  # which completes this one, as it was chained to it
        if not super().done():
            try:
                value = self._compute()
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(value)

    def done(self) -> bool:
        return True

    def wait(self) -> Any:
        self.complete()
        return super().wait()

    def value(self) -> Any:
        self.complete()
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> LazyFuture:
        following = LazyFuture(lambda: callback(self), parent=self)
        self.add_done_callback(lambda _: following.complete())
        return following


def collect_all(futures: Sequence[Any]) -> Any:
    """torch.futures.collect_all: a Future of the completed ones."""

    def complete() -> list[Any]:
        for future in futures:
            future.wait()
        return list(futures)

    return LazyFuture(complete)


def wait_all(futures: Sequence[Any]) -> list[Any]:
    """torch.futures.wait_all: the values."""
    return [future.wait() for future in futures]
