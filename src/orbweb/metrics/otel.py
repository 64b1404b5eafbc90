"""OpenTelemetry: a node's metrics and traces, sent to a collector by OTLP over HTTP."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from orbweb.errors import ConfigError
from orbweb.log import mask_secrets
from orbweb.metrics.exposition import Exposition, Kind, Labels, Metric
from orbweb.metrics.own import OtelOptions
from orbweb.monitor.counts import Histogram
from orbweb.monitor.trace import Trace

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import export as otel
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
except ImportError as error:
    raise ConfigError("OTLP_ENDPOINT needs OpenTelemetry: pip install 'orbweb[otel]'") from error

SCOPE = "orbweb"
TIMEOUT_SECONDS = 2.0
LAST_SECONDS = 1.5
"""How long a collector that does not answer may hold up the end of a node."""


class OtelTracer:
    """Makes a span of each attempt, with a span for each of its phases. See `Tracer`."""

    def __init__(self, options: OtelOptions, clock: Callable[[], float]) -> None:
        """`clock` is the engine's, in seconds."""
        exporter = OTLPSpanExporter(
            endpoint=f"{options.endpoint}/v1/traces",
            headers=dict(options.headers),
            timeout=TIMEOUT_SECONDS,
        )
        self._provider = TracerProvider(
            resource=Resource.create(dict(options.attributes)), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(SCOPE)
        self._ratio = options.ratio
        self._rng = random.Random()
        self._clock = clock
        self._began_ns = time.time_ns() - int(clock() * 1e9)

    def samples(self) -> bool:
        """See `Tracer`."""
        return self._rng.random() < self._ratio

    def ended(self, trace: Trace) -> None:
        """See `Tracer`."""
        marks = trace.marks
        ends = [*(at for _, at in marks[1:]), self._clock()]
        root = self._tracer.start_span(
            trace.host,
            kind=SpanKind.CLIENT,
            start_time=self._ns(marks[0][1]),
            attributes=_attributes(trace),
        )
        if trace.error:
            root.set_status(Status(StatusCode.ERROR, mask_secrets(trace.error)))
        inside = set_span_in_context(root)
        for (phase, began), ended in zip(marks, ends, strict=True):
            span = self._tracer.start_span(phase, context=inside, start_time=self._ns(began))
            span.end(end_time=self._ns(ended))
        root.end(end_time=self._ns(ends[-1]))

    def close(self) -> None:
        """Send what waits; blocks."""
        self._provider.shutdown()

    def _ns(self, at: float) -> int:
        return self._began_ns + int(at * 1e9)


def _attributes(trace: Trace) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "server.address": trace.host,
        "orbweb.request": trace.id,
        "orbweb.reason": trace.reason,
        "orbweb.attempt": trace.attempt,
    }
    if trace.url:
        found |= {"url.full": mask_secrets(trace.url), "http.request.method": trace.method}
    if trace.status:
        found["http.response.status_code"] = trace.status
    return found


@asynccontextmanager
async def telling_metrics(
    options: OtelOptions, gather: Callable[[], Exposition]
) -> AsyncIterator[None]:
    """Tell the metrics at every interval, and once more at the end of the context."""
    exporter = OTLPMetricExporter(
        endpoint=f"{options.endpoint}/v1/metrics",
        headers=dict(options.headers),
        timeout=TIMEOUT_SECONDS,
    )
    resource, began_ns = Resource.create(dict(options.attributes)), time.time_ns()

    async def tell() -> None:
        await asyncio.to_thread(exporter.export, metrics_data(gather(), resource, began_ns))

    async def go_on() -> None:
        while True:
            await asyncio.sleep(options.interval_seconds)
            await tell()

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await tell()
        exporter.shutdown()


def metrics_data(text: Exposition, resource: Resource, began_ns: int) -> otel.MetricsData:
    """The metrics of a page as OpenTelemetry has them; counters count since `began_ns`."""
    now_ns = time.time_ns()
    metrics = [
        otel.Metric(metric.name, metric.text, "", _data(metric, points, began_ns, now_ns))
        for metric, points in text.points.items()
    ]
    scope = otel.ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
    return otel.MetricsData([otel.ResourceMetrics(resource, [scope], "")])


def _data(
    metric: Metric, points: list[tuple[Labels, float | Histogram]], began_ns: int, now_ns: int
) -> Any:
    cumulative = otel.AggregationTemporality.CUMULATIVE
    if metric.kind is Kind.HISTOGRAM:
        found = [
            _histogram_point(metric, labels, point, began_ns, now_ns)
            for labels, point in points
            if isinstance(point, Histogram)
        ]
        return otel.Histogram(found, cumulative)
    numbers = [
        otel.NumberDataPoint(dict(labels), began_ns, now_ns, point)
        for labels, point in points
        if not isinstance(point, Histogram)
    ]
    if metric.kind is Kind.COUNTER:
        return otel.Sum(numbers, cumulative, is_monotonic=True)
    return otel.Gauge(numbers)


def _histogram_point(
    metric: Metric, labels: Labels, histogram: Histogram, began_ns: int, now_ns: int
) -> otel.HistogramDataPoint:
    return otel.HistogramDataPoint(
        attributes=dict(labels),
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        count=histogram.count,
        sum=histogram.sum,
        bucket_counts=histogram.padded(len(metric.bounds) + 1),
        explicit_bounds=metric.bounds,
        min=0.0,
        max=metric.bounds[-1],
    )
