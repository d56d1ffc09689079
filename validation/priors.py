"""The constants of the NCCL cost model with their prior knowledge: what each means, where its first value comes from, how
far hardware may differ. The fit moves them; nothing here reaches a prediction without it.

Priors are log-normal: value x exp(sd x N(0, 1)); a deviation (by generation, transport ...) is a factor with its own sd,
so that hardware with few measurements stays near the average of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prior:
    value: float
    sd: float
    unit: str
    meaning: str
    source: str = "order of magnitude"
    by: dict[str, float] = field(default_factory=dict)
    limits: tuple[float, float] = (0.0, float("inf"))


US = 1e-6
TUNER = "NCCL's tuner, src/graph/tuning.cc"

PRIORS: dict[str, Prior] = {
    "base": Prior(6.8 * US, 0.3, "s", "launch of the kernel to its end with nothing to do",
                  "NCCL's tuner: 6.6 us base of Ring/LL", {"generation": 0.25, "vendor": 0.2}),
    "speed": Prior(1.0, 0.001, "", "pace of a GPU's protocol steps, against the average",
                   "definition", {"generation": 0.25}),
    "simple.speed": Prior(1.0, 0.001, "", "pace of a GPU's Simple steps, against the average",
                          "definition", {"generation": 0.25, "vendor": 0.25}),
    "remote": Prior(1.0, 0.001, "", "cost of a remote message, against the average",
                    "definition", {"transport": 0.5}),
    "hop.ll": Prior(0.8 * US, 0.2, "s", "one LL hop inside a node", "NCCL's tuner: 0.6 us", {"link": 0.2}),
    "hop.ll.tiny": Prior(0.3, 0.4, "", "share of an LL hop saved by a message of no bytes (fades over 96 B)", "measured"),
    "hop.ll128": Prior(3.0 * US, 0.4, "s", "one LL128 hop inside a node", "NCCL's tuner: 1.9 us", {"generation": 0.2}),
    "hop.simple": Prior(8.0 * US, 0.4, "s", "one Simple ring hop inside a node", "NCCL's tuner: 3.4 us", {"link": 0.2}),
    "tree.ll": Prior(0.8 * US, 0.2, "s", "one LL tree hop inside a node", "NCCL's tuner: 0.6 us"),
    "tree.ll128": Prior(2.5 * US, 0.4, "s", "one LL128 tree hop inside a node", "NCCL's tuner: 1.25 us"),
    "tree.simple": Prior(4.0 * US, 0.4, "s", "one Simple tree hop inside a node", "NCCL's tuner: 4 us"),
    "net.ll": Prior(5.0 * US, 0.3, "s", "one LL hop over the network, without the wire", "NCCL's tuner: 5 us tree, 2.7 us ring"),
    "net.ll128": Prior(6.0 * US, 0.4, "s", "one LL128 hop over the network, without the wire", "NCCL's tuner: 8.5 us tree, 4 us ring"),
    "net.simple": Prior(20.0 * US, 0.4, "s", "one Simple ring hop over the network, without the wire", "NCCL's tuner: 14 us"),
    "net.tree.simple": Prior(20.0 * US, 0.4, "s", "one Simple tree hop over the network, without the wire", "NCCL's tuner: 14 us"),
    "wire": Prior(1.0 * US, 0.5, "s", "what the transport adds to every network hop",
                  "EFA: tens of us published, Slingshot 1 to 2 us", {"transport": 2.0}),
    "link": Prior(1.0, 0.05, "", "share of NCCL's link figure that data gets",
                  "NCCL's figure already leaves protocol out", {"generation": 0.04, "vendor": 0.1, "link": 0.1}, (0.3, 1.08)),
    "share.ll": Prior(0.40, 0.2, "", "share of the link that LL gets (8 of 16 bytes are flags)", "protocol: at most 0.5", {"generation": 0.15}, (0.1, 0.5)),
    "share.ll128": Prior(0.80, 0.15, "", "share of the link that LL128 gets (120 of 128 bytes)", "protocol: at most 0.9375", {"generation": 0.1}, (0.1, 0.94)),
    "share.simple": Prior(1.0, 0.001, "", "share of the link that Simple gets", "definition"),
    "ring.copy.simple": Prior(0.5, 0.3, "", "time of the final copy of a Simple ring, in steps", "n operations for n-1 sends"),
    "ring.copy.ll": Prior(0.5, 0.3, "", "time of the final copy of an LL ring, in steps", "n operations for n-1 sends"),
    "ring.copy.ll128": Prior(0.5, 0.3, "", "time of the final copy of an LL128 ring, in steps", "n operations for n-1 sends"),
    "ring.start": Prior(8.0 * US, 0.4, "s", "what a Simple ring needs before its first step", "one more step"),
    "ring.fill": Prior(0.06, 0.5, "", "share of a step's first chunk that is not hidden", "pipeline fill"),
    "overlap.ll": Prior(1.2, 0.2, "", "p-norm of hops and bytes, LL and LL128", "1 is none, large is all", {}, (1.0, 8.0)),
    "overlap.simple": Prior(1.4, 0.2, "", "p-norm of hops and bytes, Simple inside a node", "1 is none, large is all", {}, (1.0, 8.0)),
    "overlap.net": Prior(2.0, 0.3, "", "p-norm of hops and bytes, Simple over the network", "1 is none, large is all", {}, (1.0, 8.0)),
    "overlap.nvls": Prior(1.5, 0.3, "", "p-norm of hops and bytes, NVLS", "1 is none, large is all", {}, (1.0, 8.0)),
    "overlap.p2p": Prior(1.1, 0.2, "", "p-norm of start and bytes, send/recv inside a node", "1 is none, large is all", {}, (0.6, 8.0)),
    "overlap.p2p.net": Prior(1.1, 0.2, "", "p-norm of start and bytes, send/recv over the network", "1 is none, large is all", {}, (0.6, 8.0)),
    "nic": Prior(0.95, 0.03, "", "share of the NICs' rate that Simple gets",
                 "published 0.90 to 0.97 of line rate", {"transport": 0.06, "attach": 0.15, "pair": 0.05}, (0.1, 0.985)),
    "nic.simple": Prior(1.0, 0.001, "", "Simple's own share of it", "definition"),
    "nic.ll": Prior(0.40, 0.2, "", "LL's share of it", "protocol: at most 0.5", {"transport": 0.7}, (0.005, 0.5)),
    "nic.ll128": Prior(0.7, 0.2, "", "LL128's share of it", "protocol: at most 0.9375", {"transport": 0.3, "pair": 0.2}, (0.05, 0.94)),
    "nic.p2p": Prior(0.90, 0.08, "", "share of the NICs' rate that send/recv gets",
                     "published 0.8 to 0.98", {"transport": 0.15, "attach": 0.15, "pair": 0.1}, (0.1, 0.985)),
    "tree.link": Prior(0.88, 0.08, "", "share of the link that a tree's chain gets", "measured"),
    "tree.cap": Prior(1.05, 0.1, "", "a tree channel's rate against the library's table", TUNER, {"generation": 0.1}),
    "tree.fill": Prior(0.5, 0.5, "", "share of the first chunk's way that is not hidden", "pipeline fill"),
    "nvls.link": Prior(0.9, 0.06, "", "share of NCCL's link figure that in-switch reduction gets",
                       "NCCL's nvlsEfficiency: 0.85 Hopper, 0.74 Blackwell", {"generation": 0.1}, (0.3, 1.1)),
    "nvls.tree": Prior(0.95, 0.05, "", "what a tree over the network leaves of the in-switch rate", "measured", {}, (0.3, 1.0)),
    "rendezvous": Prior(8 * US, 0.4, "s", "what a Slingshot hop adds to an LL message above the CXI copy threshold", "measured"),
    "nvls.one_way": Prior(1.0, 0.06, "", "share of NCCL's link figure that in-switch all_gather gets", "measured", {}, (0.3, 1.15)),
    "channel.ll": Prior(2.0, 0.4, "", "rate of one LL channel, against its share of the link", "measured"),
    "channel.ll128": Prior(2.0, 0.4, "", "rate of one LL128 channel, against its share of the link", "measured"),
    "channel.simple": Prior(2.0, 0.4, "", "rate of one Simple channel, against its share of the link", "measured"),
    "nvls.chunk": Prior(5 * US, 0.5, "s", "cost of one NVLS chunk on one lane", "measured", {"generation": 0.5}),
    "nvls.start": Prior(18 * US, 0.3, "s", "start of an NVLS operation", "NCCL's tuner: 25 us"),
    "nvls.net": Prior(10 * US, 0.4, "s", "one NVLS tree hop over the network, without the wire", "NCCL's tuner: 14 to 20.9 us"),
    "sharp.collnet_direct": Prior(0.8, 0.1, "", "share of the NICs' rate with CollNet Direct", "measured"),
    "sharp.collnet_chain": Prior(0.72, 0.1, "", "share of the NICs' rate with a CollNet chain", "measured"),
    "p2p.start": Prior(1.7 * US, 0.5, "s", "start of a group of sends and receives", "measured"),
    "p2p.peer": Prior(0.23 * US, 0.5, "s", "each further local peer", "measured"),
    "p2p.simple": Prior(4.0 * US, 0.5, "s", "start of a Simple message inside a node", "measured"),
    "p2p.net": Prior(5.0 * US, 0.5, "s", "start of sends over the network", "NCCL's tuner: 14 us"),
    "p2p.remote": Prior(3.6 * US, 0.5, "s", "each remote peer (the proxy posts its message)", "1 to 3 us a post"),
    "p2p.link": Prior(0.93, 0.06, "", "share of the link that send/recv gets", "measured", {"generation": 0.05, "link": 0.1}, (0.3, 1.2)),
    "p2p.channel": Prior(1.5, 0.5, "", "rate of one channel of send/recv, against its share of the link", "measured", {"generation": 0.3}),
    "p2p.channel.ll": Prior(1.5, 0.5, "", "rate of one channel of LL send/recv, against its share of the link", "measured"),
    "p2p.self": Prior(0.5, 0.4, "", "time of the copy to oneself, against a remote piece", "measured", {"generation": 0.4}),
    "share.p2p.ll": Prior(0.65, 0.2, "", "share of the link that LL send/recv gets", "measured", {"generation": 0.1}, (0.1, 1.0)),
    "int8": Prior(0.056, 0.4, "", "how much slower one-byte sums are", "measured", {"generation": 0.4}),
}  # fmt: skip
