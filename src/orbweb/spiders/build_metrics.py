"""Assembly of what a node tells of itself: vitals, its own scrape target, OpenTelemetry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from orbweb.download.http import Traffic
from orbweb.engine.engine import Engine
from orbweb.errors import ConfigError
from orbweb.metrics.exposition import Exposition
from orbweb.metrics.node import Speaker
from orbweb.metrics.own import OtelOptions, node_metrics
from orbweb.monitor.trace import Tracer
from orbweb.monitor.vitals import VitalSigns
from orbweb.settings import Settings


def vitals(traffic: Traffic, folder: Path) -> Callable[[], dict[str, float | int]]:
    """Reads what the node takes of its machine; `folder` lies on the disk to look at."""
    return VitalSigns(lambda: (traffic.received, traffic.sent), folder).read


async def tell_metrics(
    engine: Engine, settings: Settings, who: Speaker, stack: AsyncExitStack
) -> None:
    """Serve the node's own metrics, as its heartbeat then tells, and send them to a collector.

    Both are imported only where they are wanted: they bring an HTTP server and a library.
    """

    def gather() -> Exposition:
        return node_metrics(who, engine.beat(), engine.stats.counts)

    if settings["METRICS_PORT"] >= 0:
        from orbweb.metrics.server import own_target

        host, port = settings["METRICS_HOST"], settings["METRICS_PORT"]
        engine.place["metrics"] = await stack.enter_async_context(own_target(gather, host, port))
    if settings["OTLP_ENDPOINT"]:
        from orbweb.metrics.otel import telling_metrics

        await stack.enter_async_context(telling_metrics(_otel_options(settings, who), gather))


def _otel_options(settings: Settings, who: Speaker) -> OtelOptions:
    return OtelOptions(
        endpoint=settings["OTLP_ENDPOINT"].rstrip("/"),
        headers=_headers(settings),
        interval_seconds=settings["OTLP_INTERVAL"],
        ratio=settings["OTLP_TRACE_RATIO"],
        attributes={
            "service.name": "orbweb",
            "service.instance.id": who.node,
            "orbweb.job": who.spider,
            "orbweb.run": who.run,
        },
    )


def _headers(settings: Settings) -> dict[str, str]:
    pairs = [text.partition("=") for text in settings["OTLP_HEADERS"]]
    if not all(name and equals for name, equals, _ in pairs):
        origin = settings.origin("OTLP_HEADERS")
        raise ConfigError(f"OTLP_HEADERS ({origin}): each is to be name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def tracer(settings: Settings, who: Speaker, stack: AsyncExitStack) -> Tracer | None:
    """Who is told of requests and their phases; None when nobody wants to know."""
    if not settings["OTLP_ENDPOINT"] or not settings["OTLP_TRACE_RATIO"]:
        return None
    from orbweb.metrics.otel import OtelTracer

    told = OtelTracer(_otel_options(settings, who), time.monotonic)
    stack.push_async_callback(asyncio.to_thread, told.close)
    return told
