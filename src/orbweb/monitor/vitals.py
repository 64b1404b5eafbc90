"""What a process takes of its machine: CPU, memory, bandwidth, disk. From the system itself."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

SAMPLE_SECONDS = 2.0
"""The CPU's load is that of at least so long."""

DISK_SECONDS = 10.0
"""The disk is looked at no more often."""

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class VitalSigns:
    """Reads them at most as often as makes sense; `read` may be called at any time.

    `cpu` is in percent of one core, over the last two seconds or more. `received` and `sent` are
    totals of the crawl's own traffic, heads included; TLS, DNS and what the network repeats are
    not. All else is in bytes. `mem_total` is what the process may have: the machine's memory, or
    the limit of its container. Where a system does not tell how much a process has in memory, `rss`
    is the most that it ever had.
    """

    def __init__(
        self,
        traffic: Callable[[], tuple[int, int]],
        folder: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        """`traffic` gives the bytes received and sent so far; `folder` lies on the disk to look at.

        Both clocks give seconds.
        """
        self._traffic = traffic
        self._folder = folder
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._sampled = (clock(), cpu_clock())
        self._cpu = 0.0
        self._disk = (0, 0)
        self._disk_at = -DISK_SECONDS
        self._mem_total = memory_total()

    def read(self) -> dict[str, float | int]:
        """The vitals, as they stand in a node's heartbeat."""
        now = self._clock()
        self._sample_cpu(now)
        self._look_at_disk(now)
        total, free = self._disk
        received, sent = self._traffic()
        return {
            "cpu": self._cpu,
            "rss": resident_bytes(),
            "mem_total": self._mem_total,
            "received": received,
            "sent": sent,
            "disk_free": free,
            "disk_total": total,
        }

    def _sample_cpu(self, now: float) -> None:
        since, used_before = self._sampled
        if now - since >= SAMPLE_SECONDS:
            used = self._cpu_clock()
            self._cpu = round(100 * (used - used_before) / (now - since), 1)
            self._sampled = now, used

    def _look_at_disk(self, now: float) -> None:
        if now - self._disk_at >= DISK_SECONDS:
            self._disk_at = now
            try:
                usage = shutil.disk_usage(self._folder)
            except OSError:
                self._disk = (0, 0)
            else:
                self._disk = (usage.total, usage.free)


def resident_bytes() -> int:
    """Memory of this process that lies in RAM."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def memory_total() -> int:
    """Memory that this process may have; 0 where the system does not tell."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
    except (ValueError, OSError):
        total = 0
    try:
        limit = int(CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return total
    return min(total, limit) if total else limit
