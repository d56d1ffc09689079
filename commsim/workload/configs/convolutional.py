"""From the keys of a convolutional network, or a list of parts, to a Model.

ResNet (He et al. 2016, arXiv:1512.03385) by the keys of a Hugging Face ResNetConfig, VGG (Simonyan
and Zisserman 2014, arXiv:1409.1556) by its channels; parameters in torchvision's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from commsim.workload.configs.keys import Keys
from commsim.workload.layer import Tensor
from commsim.workload.model import Model
from commsim.workload.parts import Part

_IMAGE = 224  # pixels a side, ImageNet's usual crop
_CLASSES = 1000  # of ImageNet


@dataclass(slots=True)
class _Network:
    """Parts so far, and the shape of what the next one reads: channels and pixels a side."""

    channels: int
    side: int
    parts: list[Part] = field(default_factory=list)

    def convolution(
        self,
        name: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        bias: bool = False,
        shared: bool = False,
    ) -> None:
        """A convolution that pads to keep the size, divided by the stride.

        shared: another one keeps the same input for its backward pass.
        """
        side = -(-self.side // stride)
        before, after = self.channels * self.side**2, channels * side**2
        weight = Tensor(name=f"{name}.weight", shape=(channels, self.channels, kernel, kernel))
        shift = (Tensor(name=f"{name}.bias", shape=(channels,)),) if bias else ()
        self.parts.append(
            Part(
                name=name,
                tensors=(weight, *shift),
                flops=2.0 * after * self.channels * kernel**2,
                activations=0 if shared else before,
                moved=before + after,
            )
        )
        self.channels, self.side = channels, side

    def batch_norm(self, name: str) -> None:
        """Batch normalisation; running statistics are no parameters."""
        size = self.channels * self.side**2
        tensors = tuple(
            Tensor(name=f"{name}.{kind}", shape=(self.channels,)) for kind in ("weight", "bias")
        )
        # Training reads the input twice: for the statistics, and to normalise.
        self.parts.append(Part(name=name, tensors=tensors, activations=size, moved=3 * size))

    def relu(self, name: str) -> None:
        """In place, as torchvision has it: its output is the next part's input."""
        size = self.channels * self.side**2
        self.parts.append(Part(name=name, moved=2 * size))

    def add(self, name: str) -> None:
        """The sum with a shortcut."""
        size = self.channels * self.side**2
        self.parts.append(Part(name=name, moved=3 * size))

    def max_pool(self, name: str, side: int) -> None:
        """The largest of neighbours, down to `side` pixels; backward needs where each one was."""
        before, after = self.channels * self.side**2, self.channels * side**2
        self.parts.append(Part(name=name, activations=before + after, moved=before + after))
        self.side = side

    def mean_pool(self, name: str) -> None:
        """The mean of each channel; what is kept is the output of the ReLU before it."""
        before = self.channels * self.side**2
        self.parts.append(Part(name=name, activations=before, moved=before + self.channels))
        self.side = 1

    def dense(self, name: str, outputs: int) -> None:
        """A linear layer over all that is there."""
        inputs = self.channels * self.side**2
        tensors = (
            Tensor(name=f"{name}.weight", shape=(outputs, inputs)),
            Tensor(name=f"{name}.bias", shape=(outputs,)),
        )
        self.parts.append(
            Part(
                name=name,
                tensors=tensors,
                flops=2.0 * inputs * outputs,
                activations=inputs,
                moved=inputs + outputs,
            )
        )
        self.channels, self.side = outputs, 1


def read_parts(config: Mapping[str, Any], where: str = "model", name: str = "") -> Model:
    """The model of a ResNet's or a VGG's keys, or of `parts`: a list of tables, each with `name`,
    `shapes` (of its parameters), `flops` (forward, one sample, a multiply-add counting 2),
    `activations` (elements kept for backward) and `moved` (elements read and written by forward,
    parameters apart).

    Raises ModelError, a line for each problem.
    """
    keys = Keys(config, where)
    kind = str(config.get("model_type"))
    parts = tuple(_READERS[kind](keys))
    keys.check()
    return Model(
        name=name or str(config.get("name") or kind),
        kind="list",
        parts=parts,
        head=False,
        final_norm=False,
        norm="none",
    )


def _resnet(keys: Keys) -> Iterator[Part]:
    depths = keys.wholes("depths") or (3, 4, 6, 3)
    widths = keys.wholes("hidden_sizes") or (256, 512, 1024, 2048)
    bottleneck = str(keys.get("layer_type") or "bottleneck") == "bottleneck"
    if len(depths) != len(widths):
        keys.problem("depths", f"expected as many as hidden_sizes, {len(widths)}, got {depths}")
        return
    net = _Network(keys.whole("num_channels", default=3), keys.whole("image_size", default=_IMAGE))
    net.convolution("conv1", keys.whole("embedding_size", default=64), 7, stride=2)
    net.batch_norm("bn1")
    net.relu("relu")
    net.max_pool("maxpool", -(-net.side // 2))
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True), start=1):
        for block in range(depth):
            stride = 2 if stage > 1 and block == 0 else 1
            _block(net, f"layer{stage}.{block}", width, stride, bottleneck)
    net.mean_pool("avgpool")
    net.dense("fc", keys.whole("num_labels", default=_CLASSES))
    yield from net.parts


def _block(net: _Network, name: str, width: int, stride: int, bottleneck: bool) -> None:
    """A residual block; the stride lies in its 3 x 3 convolution (torchvision, ResNet v1.5)."""
    channels, side = net.channels, net.side
    inner = width // 4 if bottleneck else width
    steps = ((inner, 1, 1), (inner, 3, stride), (width, 1, 1)) if bottleneck else (
        (inner, 3, stride), (width, 3, 1)
    )  # fmt: skip
    for i, (out, kernel, step) in enumerate(steps, start=1):
        net.convolution(f"{name}.conv{i}", out, kernel, step)
        net.batch_norm(f"{name}.bn{i}")
        if i < len(steps):
            net.relu(f"{name}.relu{i}")
    if stride > 1 or channels != width:
        net.channels, net.side = channels, side
        net.convolution(f"{name}.downsample.0", width, 1, stride, shared=True)
        net.batch_norm(f"{name}.downsample.1")
    net.add(f"{name}.add")
    net.relu(f"{name}.relu")


def _vgg(keys: Keys) -> Iterator[Part]:
    net = _Network(keys.whole("num_channels", default=3), keys.whole("image_size", default=_IMAGE))
    stages = keys.get("channels")
    if not _are_shapes(stages):
        keys.problem("channels", f"expected lists such as [[64, 64], [128, 128]], got {stages!r}")
        return
    for i, stage in enumerate(stages):
        for j, channels in enumerate(stage):
            net.convolution(f"features.{i}.{j}", channels, 3, bias=True)
            net.relu(f"features.{i}.{j}.relu")
        net.max_pool(f"features.{i}.pool", net.side // 2)
    for i, width in enumerate(keys.wholes("classifier") or (4096, 4096)):
        net.dense(f"classifier.{i}", width)
        net.relu(f"classifier.{i}.relu")
    net.dense("classifier.head", keys.whole("num_labels", default=_CLASSES))
    yield from net.parts


def _listed(keys: Keys) -> Iterator[Part]:
    tables = keys.get("parts")
    if not isinstance(tables, list | tuple) or not tables:
        keys.problem("parts", f"expected a list of tables, got {tables!r}")
        return
    for i, table in enumerate(tables):
        if not isinstance(table, Mapping):
            keys.problem(f"parts[{i}]", f"expected a table, got {table!r}")
            continue
        part = Keys(table, f"{keys.where}: parts[{i}]")
        name = str(table.get("name", i))
        shapes = table.get("shapes", ())
        if not _are_shapes(shapes):
            part.problem("shapes", f"expected lists of whole numbers, got {shapes!r}")
            shapes = ()
        yield Part(
            name=name,
            tensors=tuple(Tensor(name=f"{name}.{k}", shape=tuple(s)) for k, s in enumerate(shapes)),
            flops=float(part.whole("flops", default=0, least=0)),
            activations=part.whole("activations", default=0, least=0),
            moved=part.whole("moved", default=0, least=0),
        )
        keys.problems += part.problems


def _are_shapes(shapes: Any) -> bool:
    return isinstance(shapes, list | tuple) and all(
        isinstance(shape, list | tuple) and all(type(n) is int and n > 0 for n in shape)
        for shape in shapes
    )


_READERS: dict[str, Callable[[Keys], Iterator[Part]]] = {
    "resnet": _resnet,
    "vgg": _vgg,
    "list": _listed,
}
KINDS = frozenset(_READERS)
