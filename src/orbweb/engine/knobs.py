"""What of an engine may change while it runs. Read anew at each use, so a change acts at once."""

from __future__ import annotations

from dataclasses import dataclass

from orbweb.engine.options import EngineOptions
from orbweb.engine.outputs import LinkRules

LEAST_HELD = 64


def held_for(concurrency: int) -> int:
    """Most leases that a node of that concurrency holds, those included whose items are stored."""
    return max(4 * concurrency, LEAST_HELD)


@dataclass(slots=True)
class Knobs:
    """Set on the engine's loop, all of a change in one turn of it. Times in seconds."""

    concurrency: int
    max_held: int
    max_retries: int
    retry_interval_seconds: float
    retry_backoff: float
    retry_longest_seconds: float
    max_runtime_seconds: float
    links: LinkRules

    @classmethod
    def of(cls, options: EngineOptions) -> Knobs:
        """As the engine begins."""
        return cls(
            concurrency=options.concurrency,
            max_held=options.max_held,
            max_retries=options.run.max_retries,
            retry_interval_seconds=options.retry_interval_seconds,
            retry_backoff=options.retry_backoff,
            retry_longest_seconds=options.retry_longest_seconds,
            max_runtime_seconds=options.max_runtime_seconds,
            links=LinkRules(
                depth_limit=options.depth_limit,
                url_length_limit=options.url_length_limit,
                allowed_domains=options.allowed_domains,
                drop_query_params=options.drop_query_params,
                exclude=options.exclude_urls,
                include=options.include_urls,
            ),
        )
