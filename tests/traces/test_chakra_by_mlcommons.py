"""Our Chakra files as MLCommons' own package reads them; skipped where mlc-chakra is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commsim.collectives.catalogue import algorithm
from commsim.collectives.collective import Collective
from commsim.traces.chakra import documents
from commsim.traces.trace import Trace

schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2")
json_format = pytest.importorskip("google.protobuf.json_format")


@pytest.mark.parametrize("name", ["ring", "nvls"])
def test_every_message_fits_the_schema_of_mlcommons(name: str, tmp_path: Path) -> None:
    """Field by field: a name or a type that et_def.proto does not know would raise."""
    asked = Collective("all_reduce", 4096)
    schedule = algorithm(name).schedule(asked, 4)
    trace = Trace(collective=asked, schedule=schedule, name=name)
    sends = 0
    for document in documents(trace):
        read = json.loads(json.dumps(document))
        meta = json_format.ParseDict(read["globalMetadata"], schema.GlobalMetadata())
        assert meta.version == "0.0.4"
        for each in read["nodes"]:
            node = json_format.ParseDict(each, schema.Node())
            values = {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}
            op = schedule[node.id - 1]
            if node.type == schema.COMM_SEND_NODE:
                sends += 1
                assert (values["comm_src"], values["comm_dst"]) == (op.source, op.destination)
                assert values["comm_size"] == op.nbytes
    assert sends == sum(op.source != op.destination for op in schedule)
