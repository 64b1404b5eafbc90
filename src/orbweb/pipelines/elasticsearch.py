"""Items into Elasticsearch or OpenSearch, over the bulk API that both have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import aiohttp
import msgspec
from yarl import URL

from orbweb.errors import ConfigError, ItemError, PipelineError
from orbweb.model.item import KEY_FIELD, ItemRecord, key_of_unique
from orbweb.pipelines.base import Page, PagePipeline, Refusal

VERSION_FIELD = "_version_ms"
"""When the page of a document's newest change was claimed."""

BULK_SECONDS = 60.0

THERE_ALREADY = 409
BUSY = frozenset({429, 500, 502, 503, 504})

CHANGE = (
    "if (ctx._source[params.field] != null && ctx._source[params.field] > params.at)"
    " { ctx.op = 'none' } else"
    " { ctx._source.putAll(params.row); ctx._source[params.field] = params.at }"
)
"""Changes a document unless something that was fetched later has changed it (Painless)."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ElasticsearchPipeline(PagePipeline):
    """Stores each item as a document whose `_id` is the item's key, so a second copy is none.

    An item that is there already stays as it was. An `UpdateItem` changes the document of the item
    whose `__unique_key__` is the update key, or makes it, unless something that was fetched later
    has changed it; when that was is kept in the document as `_version_ms`.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        """`hosts`: addresses of nodes such as `http://user:password@localhost:9200`."""
        if not hosts:
            raise ConfigError("ELASTICSEARCH_HOSTS is empty: name a node")
        self._hosts = [_address(host) for host in hosts]
        self._session: aiohttp.ClientSession | None = None
        self._tables: dict[str, None] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(settings["ELASTICSEARCH_HOSTS"])

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(str(self._hosts[0].with_user(None) / table) for table in self._tables)

    async def save_pages(self, pages: Sequence[Page]) -> list[Refusal]:
        """See `PagePipeline`. Raises `PipelineError` while the cluster cannot be used."""
        refusals: list[Refusal] = []
        records: list[ItemRecord] = []
        lines: list[bytes] = []
        for page in pages:
            for record in page.records:
                try:
                    lines += _lines(record, page.origin.claimed_at_ms)
                except ItemError as error:
                    refusals.append(Refusal(record, error))
                    continue
                records.append(record)
        if records:
            answer = await self._send(b"\n".join(lines) + b"\n")
            refusals += _refused(records, answer)
            self._tables.update(dict.fromkeys(record.table for record in records))
        return refusals

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _send(self, body: bytes) -> dict[str, Any]:
        """Send to the first node; when it does not answer the next one is first from then on."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=BULK_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        host = self._hosts[0]
        kind = {"Content-Type": "application/x-ndjson"}
        try:
            async with self._session.post(host / "_bulk", data=body, headers=kind) as response:
                text = await response.read()
                if response.status == 200:
                    return _decode(text)
                self._hosts.append(self._hosts.pop(0))
                said = text[:300].decode("utf-8", "replace")
                raise PipelineError(f"{host.host} answers {response.status}: {said}")
        except (TimeoutError, aiohttp.ClientError, msgspec.DecodeError) as error:
            self._hosts.append(self._hosts.pop(0))
            raise PipelineError(f"{host.host}: {type(error).__name__}: {error}") from error


def _address(host: str) -> URL:
    try:
        url = URL(host)
    except ValueError as error:
        raise ConfigError(f"ELASTICSEARCH_HOSTS: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(
            f"ELASTICSEARCH_HOSTS: {url.with_user(None) if url.host else host!r} is no address; "
            "right would be http://localhost:9200"
        )
    return url


def _lines(record: ItemRecord, at_ms: int) -> Iterator[bytes]:
    """The two lines of a record in the body of a bulk request."""
    row = {name: value for name, value in record.row.items() if name != KEY_FIELD}
    if record.update_keys is None:
        yield _json(record, {"create": {"_index": record.table, "_id": record.key}})
        yield _json(record, row)
        return
    id = key_of_unique(record.table, record.row, record.update_keys)
    params = {"row": row, "at": at_ms, "field": VERSION_FIELD}
    yield _json(record, {"update": {"_index": record.table, "_id": id, "retry_on_conflict": 5}})
    script = {"lang": "painless", "source": CHANGE, "params": params}
    yield _json(record, {"scripted_upsert": True, "script": script, "upsert": {}})


def _json(record: ItemRecord, value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ItemError(f"item {record.key} of {record.table!r}: {error}") from error


def _refused(records: Sequence[ItemRecord], answer: Mapping[str, Any]) -> Iterator[Refusal]:
    """The records that were refused. Raises `PipelineError` for what may go well later."""
    results = answer.get("items", ())
    if len(results) != len(records):
        raise PipelineError(f"{len(results)} answers for {len(records)} items")
    for record, result in zip(records, results, strict=True):
        ((verb, outcome),) = result.items()
        status = outcome.get("status", 500)
        if status < 300 or (status == THERE_ALREADY and verb == "create"):
            continue
        error = outcome.get("error") or {}
        cause = (error.get("caused_by") or {}).get("reason", "")
        text = f"item {record.key} of {record.table!r}: {error.get('reason', status)} {cause}"
        if status in BUSY or status == THERE_ALREADY:
            raise PipelineError(text.strip())
        yield Refusal(record, ItemError(text.strip()))
