"""What the simulator relies on of each private name of torch; a new torch is checked here first."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed import distributed_c10d as c10d  # noqa: E402

from commsim.torch_backend import private  # noqa: E402


def test_new_process_group_helper_takes_what_is_passed_on() -> None:
    names = list(inspect.signature(c10d._new_process_group_helper).parameters)
    assert names[:6] == [
        "group_size", "group_rank", "global_ranks_in_group", "backend", "store", "group_name",
    ]  # fmt: skip
    assert {"device_id", "backend_options"} <= set(names)


def test_the_tables_of_a_process_are_all_replaced() -> None:
    real = {name for name, value in vars(type(c10d._world)).items() if isinstance(value, property)}
    assert real <= set(private.TABLES)
    mine = private.ProcessTables()
    assert all(hasattr(mine, name) for name in private.TABLES)


def test_tables_are_each_threads_own() -> None:
    tables: Any = private.TablesByThread()
    tables.group_count = 3
    seen = []
    thread = threading.Thread(target=lambda: seen.append(tables.group_count))
    thread.start()
    thread.join()
    assert (seen, tables.group_count) == ([0], 3)


def test_rendezvous_handlers_are_a_table_by_scheme() -> None:
    import sys

    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    assert {"env", "tcp", "file"} <= set(handlers)


def test_thread_isolation_can_be_set() -> None:
    isolate = vars(torch._C._distributed_c10d)["_set_thread_isolation_mode"]
    isolate(True)
    isolate(False)


def test_graph_task_id_tells_a_backward_pass() -> None:
    seen = []
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda _: seen.append(private.in_backward()))
    (x * 2).backward()
    assert (seen, private.in_backward()) == ([True], False)


def test_callbacks_of_the_engine_run_in_order_at_the_end_of_backward() -> None:
    seen: list[str] = []
    x = torch.ones(1, requires_grad=True)

    def hook(_: Any) -> None:
        private.after_backward(lambda: seen.append("first"))
        private.after_backward(lambda: seen.append("second"))
        seen.append("hook")

    x.register_hook(hook)
    (x * 2).backward()
    assert seen == ["hook", "first", "second"]


def test_backward_can_be_kept_on_the_calling_thread() -> None:
    before = torch.autograd.is_multithreading_enabled()
    seen = []
    try:
        torch.autograd.set_multithreading_enabled(False)
        x = torch.ones(1, requires_grad=True)
        x.register_hook(lambda _: seen.append(threading.current_thread()))
        (x * 2).backward()
    finally:
        torch.autograd.set_multithreading_enabled(before)
    assert seen == [threading.current_thread()]


def test_a_group_in_python_has_the_methods_that_cpp_calls() -> None:
    from commsim.torch_backend.group import SimulatedGroup

    called = (
        "allgather", "all_gather_single_coalesced", "allreduce", "allreduce_coalesced",
        "all_to_all_single", "barrier", "broadcast", "reduce_scatter",
        "reduce_scatter_single_coalesced", "send", "recv",
    )  # fmt: skip
    assert all(name in vars(SimulatedGroup) for name in called)


def test_every_method_that_torch_calls_on_a_group_is_there() -> None:
    import re

    from commsim.torch_backend.group import SimulatedGroup

    source = inspect.getsource(c10d)
    called = set(re.findall(r"\bgroup\.(\w+)\(", source))
    told = {"rank", "size", "abort", "split_group", "_get_backend"}
    ours = {n for base in SimulatedGroup.__mro__[:1] for n in vars(base)}
    assert called - told - ours == set()


def test_premul_sum_tells_its_factor() -> None:
    assert private.premul_factor(dist._make_nccl_premul_sum(0.25)) == 0.25


def test_modes_can_be_put_aside() -> None:
    with private.FakeTensorMode():
        assert isinstance(torch.ones(1), private.FakeTensor)
        with private.no_modes():
            assert not isinstance(torch.ones(1), private.FakeTensor)


def test_names_of_ops_and_their_aliases() -> None:
    schema = private.schema(torch.ops.aten.add_.Tensor)
    assert schema.name == "aten::add_"
    assert schema.arguments[0].alias_info.is_write
    view = private.schema(torch.ops.aten.view.default)
    assert view.returns[0].alias_info is not None
    assert not view.returns[0].alias_info.is_write
    assert private.overloads(torch.ops.aten.mm.default) is torch.ops.aten.mm


@pytest.mark.parametrize(
    ("where", "name"),
    [
        *private.READING_DATA,
        private.BUCKETS,
        private.BEFORE_BUCKETS,
        private.CONVERT,
        *private.WAITING_IN_CPP,
    ],
)
def test_what_shape_mode_replaces_is_there(where: Any, name: str) -> None:
    assert callable(getattr(where, name))


def test_what_shape_mode_imports_to_replace_is_there() -> None:
    for where, name in [*private.needing_data(), *private.keeping_values(), private.sharding()]:
        assert callable(getattr(where, name))
    assert list(inspect.signature(getattr(*private.sharding())).parameters) == [
        "tensor", "num_chunks", "dim",
    ]  # fmt: skip


def test_what_is_replaced_is_put_back() -> None:
    class Thing:
        name = 1

    with private.replaced([(Thing, "name", 2)]):
        assert Thing.name == 2
    assert Thing.name == 1


def test_torch_is_as_before_after_a_run(simulate: Any) -> None:
    before = c10d._world, c10d._new_process_group_helper, torch.cpu.Stream, dist.TCPStore
    simulate("import torch.distributed as dist\ndist.init_process_group('gloo')", 2)
    assert before == (c10d._world, c10d._new_process_group_helper, torch.cpu.Stream, dist.TCPStore)
    assert not dist.is_initialized()
