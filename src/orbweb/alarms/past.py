"""What was seen before: short series of numbers from which rates and trends follow. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEAST_GAP_MS = 4000
"""Samples of one series lie at least so far apart, so that a series stays short."""

MOST_SERIES = 2000
FOUND = "found"
"""How the names of series begin that outlive a time without a look."""

GAP_MS = 30_000
"""After so long without a look nothing is known of the time between."""


class Past(msgspec.Struct):
    """Samples by name. Lives in the store, so that another process goes on with it."""

    series: dict[str, list[tuple[int, list[float]]]] = {}
    looked_ms: int = 0
    watched_since_ms: int = 0
    """Since when somebody has looked without a gap."""

    def look(self, at_ms: int) -> None:
        """The fleet is looked at: note whether that was long ago."""
        if at_ms - self.looked_ms > GAP_MS or at_ms < self.looked_ms:
            self.watched_since_ms = at_ms
            kept = {name: past for name, past in self.series.items() if name.startswith(FOUND)}
            self.series = kept
        self.looked_ms = at_ms

    def grown(
        self, name: str, at_ms: int, values: Sequence[float], keep_ms: float, born_ms: float = 0.0
    ) -> list[float]:
        """Note counts; how much each has grown within `keep_ms`. Counts that fall began anew.

        They began from nothing at `born_ms`, if that is known.
        """
        samples = self.series.get(name, [])
        if not samples and at_ms - born_ms < keep_ms:
            self.series[name] = samples = [(round(born_ms), [0.0] * len(values))]
        if samples and any(new < old for new, old in zip(values, samples[-1][1], strict=True)):
            samples.clear()
        first = self.note(name, at_ms, values, keep_ms)
        return [new - old for new, old in zip(values, first, strict=True)]

    def note(self, name: str, at_ms: int, values: Sequence[float], keep_ms: float) -> list[float]:
        """Add a sample; returns the last one that is `keep_ms` old, or else the first there is."""
        samples = self.series.pop(name, [])  # put back last: the series that is used least is first
        if not samples or at_ms - samples[-1][0] >= LEAST_GAP_MS:
            samples.append((at_ms, list(values)))
        while len(samples) > 2 and samples[1][0] <= at_ms - keep_ms:
            del samples[0]
        self._put(name, samples)
        return samples[0][1]

    def unchanged_ms(self, name: str, at_ms: int, value: float) -> int:
        """For how long the number has been the same; notes it."""
        samples = self.series.pop(name, [])
        if not samples or samples[-1][1] != [value]:
            samples = [(at_ms, [value])]
        self._put(name, samples)
        return at_ms - samples[0][0]

    def _put(self, name: str, samples: list[tuple[int, list[float]]]) -> None:
        self.series[name] = samples
        while len(self.series) > MOST_SERIES:
            del self.series[next(iter(self.series))]
