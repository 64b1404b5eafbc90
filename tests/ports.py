"""Ports for the servers of tests."""

from __future__ import annotations

import random
import socket

UNCLAIMED = range(15_000, 30_000)
"""Below those that systems give to outgoing connections, which could take one in the meantime."""

_random = random.SystemRandom()
"""Not the one that pytest seeds: several processes run tests at once with one seed."""


def free_port() -> int:
    """A port that nobody listens on. It is free until somebody takes it."""
    while True:
        port = _random.choice(UNCLAIMED)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
