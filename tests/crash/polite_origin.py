"""A web site that only measures: the kernel says when each request reached it.

    python -m tests.crash.polite_origin LOG [LATENCY]

Prints its port. Every page is the same; robots.txt is 404. Answers on all addresses of the machine.
"""

from __future__ import annotations

import signal
import sys
import time

from tests.origin import Arrival, StampingOrigin

from orbweb.testing.origin import Hit, OriginWriter

PAGE = b"<html><body><h1>page</h1></body></html>"


def main(log: str, latency: float) -> None:
    writer = OriginWriter(log)

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        time.sleep(latency)
        return (404, {}, b"") if path == "/robots.txt" else (200, {}, PAGE)

    def note(arrival: Arrival, status: int) -> None:
        writer.write(Hit(arrival.at, time.time(), arrival.host, "GET", arrival.path, status))

    with StampingOrigin(answer, "0.0.0.0", note) as site:
        print(site.port, flush=True)
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
