"""Runs scripts on real Gloo processes, recording what reaches their process groups.

    python real_gloo.py [--plain] NPROC OUT.json SCRIPT...

One process imports torch and forks the ranks, so that the import is paid once. OUT.json gets, for
each script, what it printed and, for each rank, its operations in order:
[operation, bytes, dtype, ranks of the group, root or peer]. With --plain nothing is recorded, and
nothing stands between the script and Gloo.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel  # before the fork
from torch.distributed import distributed_c10d as c10d

if not hasattr(torch.cpu.Stream, "record_event"):  # torch 2.6: FSDP2 asks the CPU's stream for it
    torch.cpu.Stream.record_event = lambda self, event=None: torch.cpu.Event()
    torch.cpu.Stream.wait_event = lambda self, event: None

RECORD: list[list[Any]] = []
KEPT: list[Any] = []  # a Gloo group that goes while its thread drops a tensor waits for itself
PLAIN = "--plain" in sys.argv


def size(tensors: Any) -> int:
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(map(size, tensors))


def dtype(tensors: Any) -> str:
    while not isinstance(tensors, torch.Tensor):
        tensors = tensors[0]
    return str(tensors.dtype).removeprefix("torch.")


class Recording(dist.ProcessGroup):
    """A group in Python around a real ProcessGroupGloo."""

    def __init__(self, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)
        self.ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        self.inner = dist.ProcessGroupGloo(
            options.store, options.group_rank, options.group_size, options.timeout
        )
        self._called = str(options.group_id)
        self.bound_device_id = None

    def getBackendName(self):
        return "recording"

    def setGroupName(self, name):
        self._called = name

    def getGroupName(self):
        return self._called

    def setGroupDesc(self, description):
        pass

    def getGroupDesc(self):
        return ""

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    _device_types = property(lambda self: [torch.device("cpu")])

    def _get_backend(self, device):
        return self.inner

    def shutdown(self):
        pass

    def note(self, operation, nbytes, tensors, root=None):
        root = None if root is None else self.ranks[root]
        RECORD.append([operation, nbytes, dtype(tensors), self.ranks, root])

    def allreduce(self, tensors, opts):
        self.note("all_reduce", size(tensors), tensors)
        return self.inner.allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors, opts):
        self.note("all_reduce", size(tensors), tensors)
        return self.inner.allreduce_coalesced(tensors, opts)

    def broadcast(self, tensors, opts):
        self.note("broadcast", size(tensors), tensors, opts.rootRank)
        return self.inner.broadcast(tensors, opts)

    def reduce(self, tensors, opts):
        self.note("reduce", size(tensors), tensors, opts.rootRank)
        return self.inner.reduce(tensors, opts)

    def allgather(self, outputs, inputs, opts):
        self.note("all_gather", size(outputs), inputs)
        return self.inner.allgather(outputs, inputs, opts)

    def all_gather_single(self, output, value, opts):
        self.note("all_gather", size(output), value)
        return self.inner._allgather_base(output, value, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        self.note("all_gather", size(outputs), inputs)
        return self.inner.allgather_into_tensor_coalesced(outputs, inputs, opts)

    def reduce_scatter(self, outputs, inputs, opts):
        self.note("reduce_scatter", size(inputs), inputs)
        return self.inner.reduce_scatter(outputs, inputs, opts)

    def reduce_scatter_single(self, output, value, opts):
        self.note("reduce_scatter", size(value), value)
        return self.inner._reduce_scatter_base(output, value, opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        self.note("reduce_scatter", size(inputs), inputs)
        return self.inner.reduce_scatter_tensor_coalesced(outputs, inputs, opts)

    _allgather_base = all_gather_single  # as torch called them before 2.13
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs, inputs, opts):
        self.note("gather", size(inputs) * len(self.ranks), inputs, opts.rootRank)
        return self.inner.gather(outputs, inputs, opts)

    def scatter(self, outputs, inputs, opts):
        self.note("scatter", size(outputs) * len(self.ranks), outputs, opts.rootRank)
        return self.inner.scatter(outputs, inputs, opts)

    def all_to_all_single(self, output, value, output_splits, input_splits, opts):
        self.note("all_to_all", size(value), value)
        return self.inner.alltoall_base(output, value, output_splits, input_splits, opts)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs, inputs, opts):
        self.note("all_to_all", size(inputs), inputs)
        return self.inner.alltoall(outputs, inputs, opts)

    def send(self, tensors, destination, tag):
        self.note("send", size(tensors), tensors, destination)
        return self.inner.send(tensors, destination, tag)

    def recv(self, tensors, source, tag):
        self.note("recv", size(tensors), tensors, source)
        return self.inner.recv(tensors, source, tag)

    def recv_anysource(self, tensors, tag):
        self.note("recv", size(tensors), tensors)
        return self.inner.recv_anysource(tensors, tag)

    def barrier(self, opts):
        RECORD.append(["barrier", 0, "uint8", self.ranks, None])
        return self.inner.barrier(opts)

    def monitored_barrier(self, timeout, wait_all_ranks=False):
        RECORD.append(["barrier", 0, "uint8", self.ranks, None])
        return self.inner.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def install() -> None:
    """Every group of this process is a recording one."""
    dist.Backend.register_backend(
        "recording", lambda options, _: Recording(options), extended_api=True, devices=["cpu"]
    )
    helper = c10d._new_process_group_helper

    def recording(size, rank, ranks, wanted, store, name, **more):
        more["backend_options"] = None
        backend = dist.Backend("recording")
        group, prefix = helper(size, rank, ranks, backend, store, name, **more)
        if group is not c10d.GroupMember.NON_GROUP_MEMBER:
            c10d._world.pg_map[group] = ("gloo", c10d._world.pg_map[group][1])
        return group, prefix

    c10d._new_process_group_helper = recording


def rank_of(script: str, rank: int, n: int, port: int, folder: Path) -> None:
    """What one forked rank does; one that hangs is killed, which is a failed run."""
    signal.alarm(150)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
        TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0",
    )  # fmt: skip
    torch.set_num_threads(1)
    if not PLAIN:
        install()
    rendezvous = sys.modules["torch.distributed.rendezvous"]
    rendezvous.TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
    sys.argv = [script]
    sys.path.insert(0, str(Path(script).resolve().parent))
    printed = io.StringIO()
    leave = dist.destroy_process_group

    def leave_together(*arguments: Any) -> None:
        wait_for_all(folder, rank, n)
        KEPT.extend(c10d._world.pg_map)
        leave(*arguments)

    dist.destroy_process_group = leave_together
    with contextlib.redirect_stdout(printed):
        runpy.run_path(script, run_name="__main__")
    wait_for_all(folder, rank, n)
    (folder / f"{rank}.json").write_text(json.dumps([printed.getvalue(), RECORD]))


def wait_for_all(folder: Path, rank: int, n: int) -> None:
    """Until every rank is here: one that leaves early closes connections that others still make."""
    (folder / f"{rank}.here").touch()
    limit = time.monotonic() + 60
    while len(list(folder.glob("*.here"))) < n and time.monotonic() < limit:
        time.sleep(0.01)


def forked(work: Callable[[], None]) -> int:
    """The process that does the work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def host_store(pipe: int) -> None:
    """Holds the store, as torchrun's agent does: rank 0 may end before the others."""
    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False
    )  # Debian's has none
    os.write(pipe, str(store.port).encode())
    time.sleep(600)


def run(script: str, n: int, tries: int = 3) -> dict[str, Any]:
    """One run of all ranks. On a busy machine Gloo's full mesh sometimes does not come up
    ("Connection closed by peer" while others still connect), so a failed run is tried again."""
    while True:
        tries -= 1
        try:
            return run_once(script, n)
        except AssertionError:
            if not tries:
                raise


def run_once(script: str, n: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port, written = os.pipe()
        # in a process of its own: no thread of it is copied when the ranks are forked
        host = forked(lambda: host_store(written))
        number = int(os.read(port, 16))
        os.close(port)
        os.close(written)
        ranks = {forked(lambda r=r: rank_of(script, r, n, number, folder)) for r in range(n)}
        failed = 0
        while ranks:
            child, status = os.wait()
            if child in ranks:
                ranks.remove(child)
                if os.waitstatus_to_exitcode(status) and not failed:
                    failed = child
                    for other in ranks:  # they would wait for it
                        os.kill(other, signal.SIGKILL)
        os.kill(host, signal.SIGKILL)
        os.waitpid(host, 0)
        assert not failed, f"{script}: a rank failed"
        records = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(n)]
    return {"printed": "".join(p for p, _ in records), "ranks": [each for _, each in records]}


if __name__ == "__main__":
    nproc, out, *scripts = [word for word in sys.argv[1:] if word != "--plain"]
    found = {script: run(script, int(nproc)) for script in scripts}
    Path(out).write_text(json.dumps(found))
