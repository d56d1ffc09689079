"""How many bytes this process has sent to whom, as its TCP sockets count them."""

from __future__ import annotations

import os
import socket
import struct

from commsim.units import Bytes

# linux/tcp.h, struct tcp_info: 8 one-byte fields, 24 of four bytes, two pacing rates of eight, then
# tcpi_bytes_acked
ACKNOWLEDGED = 8 + 24 * 4 + 2 * 8
INFO_SIZE = 256


def acknowledged() -> dict[str, Bytes]:
    """Bytes that each peer ("address:port") has acknowledged on this process's TCP connections."""
    found: dict[str, Bytes] = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                continue
            copy = socket.socket(fileno=os.dup(int(entry)))
        except OSError:
            continue  # closed meanwhile, or no socket that Python can name
        with copy:
            if copy.family != socket.AF_INET or copy.type != socket.SOCK_STREAM:
                continue
            try:
                host, port = copy.getpeername()
            except OSError:
                continue  # one that listens
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_SIZE)
            peer = f"{host}:{port}"
            found[peer] = found.get(peer, 0) + struct.unpack_from("=Q", info, ACKNOWLEDGED)[0]
    return found
