"""Stand-ins for servers that no package here brings: they speak the protocol, and little more.

MongoDB: OP_MSG with hello, insert, find and the one kind of update that the pipeline sends.
Elasticsearch: the bulk API with create and the one script that the pipeline sends.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

import bson
from aiohttp import web

Document = dict[str, Any]

MET: dict[str, str] = {}
"""Servers that tests of this process have met as stand-ins only, and what names a real one."""


class MongoStandIn:
    """Collections in memory, behind a real socket."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[Any, Document]] = {}
        self.refuse: Callable[[Document], int] = lambda document: 0
        """The error code for a document that is inserted; 0 = it is taken."""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> MongoStandIn:
        MET["MongoDB"] = "ORBWEB_TEST_MONGO=mongodb://…"
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def uri(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"mongodb://127.0.0.1:{port}/?directConnection=true&serverMonitoringMode=poll"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length, request_id, _, code = struct.unpack("<iiii", await reader.readexactly(16))
                body = await reader.readexactly(length - 16)
                answer = bson.encode({"ok": 1.0, **self._answer(_command(code, body))})
                await self._send(writer, request_id, code, answer)
        except asyncio.IncompleteReadError:
            writer.close()

    async def _send(
        self, writer: asyncio.StreamWriter, request_id: int, code: int, answer: bytes
    ) -> None:
        if code == 2004:  # the first hello of a driver is an OP_QUERY
            body, code = struct.pack("<iqii", 8, 0, 0, 1) + answer, 1
        else:
            body = struct.pack("<i", 0) + b"\0" + answer
        writer.write(struct.pack("<iiii", 16 + len(body), 0, request_id, code) + body)
        await writer.drain()

    def _answer(self, command: Document) -> Document:
        name = next(iter(command))
        if name in ("hello", "isMaster", "ismaster"):
            return {
                "isWritablePrimary": True, "ismaster": True, "maxWireVersion": 21,
                "minWireVersion": 0, "maxBsonObjectSize": 16 << 20,
                "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
            }  # fmt: skip
        if name == "insert":
            return self._each(command, command["documents"], self._insert)
        if name == "update":
            return self._each(command, command["updates"], self._update)
        return {}

    def _each(self, command: Document, parts: list[Document], act: Any) -> Document:
        table = self.collections.setdefault(next(iter(command.values())), {})
        errors = []
        for index, part in enumerate(parts):
            code, text = act(table, part)
            if code:
                pattern = {"keyPattern": {"_id": 1}} if code == 11000 else {}
                errors.append({"index": index, "code": code, "errmsg": text, **pattern})
        done: Document = {"n": len(parts) - len(errors), "nModified": 0}
        return done | ({"writeErrors": errors} if errors else {})

    def _insert(self, table: dict[Any, Document], document: Document) -> tuple[int, str]:
        if code := self.refuse(document):
            return code, "refused"
        if document["_id"] in table:
            return 11000, f"E11000 duplicate key error dup key: {{ _id: {document['_id']!r} }}"
        table[document["_id"]] = document
        return 0, ""

    def _update(self, table: dict[Any, Document], update: Document) -> tuple[int, str]:
        fields = update["q"]
        same = [one for one in table.values() if fields.items() <= one.items()]
        found = same[0] if same else dict(fields)
        (stage,) = update["u"]
        made = evaluate(stage["$replaceWith"], found)
        table[made["_id"]] = made
        return 0, ""


def evaluate(expression: Any, root: Document) -> Any:
    """The operators of aggregation that the pipeline uses, as MongoDB's manual defines them."""
    if expression == "$$ROOT":
        return dict(root)
    if isinstance(expression, str) and expression[:1] == "$":
        return root.get(expression[1:])
    if not isinstance(expression, dict):
        return expression
    name, value = next(iter(expression.items()), ("", None))
    if name == "$literal":
        return value
    if name == "$cond":
        condition, then, otherwise = value
        return evaluate(then if evaluate(condition, root) else otherwise, root)
    if name == "$gt":
        left, right = (evaluate(part, root) for part in value)
        return left is not None and left > right
    if name == "$mergeObjects":
        merged: Document = {}
        for part in value:
            merged |= evaluate(part, root)
        return merged
    assert name[:1] != "$", f"the stand-in does not know {name}"
    return {key: evaluate(part, root) for key, part in expression.items()}


def _command(code: int, body: bytes) -> Document:
    if code == 2004:
        start = body.index(b"\0", 4) + 9
        return bson.decode(body[start:])
    command: Document = {}
    at = 4
    while at < len(body):
        kind, at = body[at], at + 1
        (size,) = struct.unpack_from("<i", body, at)
        section = body[at : at + size]
        at += size
        if kind == 0:
            command = {**bson.decode(section), **command}
        else:
            name_end = section.index(b"\0", 4)
            command[section[4:name_end].decode()] = bson.decode_all(section[name_end + 1 :])
    documents = {key: value for key, value in command.items() if key in ("documents", "updates")}
    return {**{key: value for key, value in command.items() if key not in documents}, **documents}


class ElasticsearchStandIn:
    """Indexes in memory, behind a real HTTP server."""

    def __init__(self) -> None:
        self.indexes: dict[str, dict[str, Document]] = {}
        self.refuse: Callable[[Document], int] = lambda document: 0
        """The status for a document that is created; 0 = it is taken."""
        self.status = 200
        self.requests = 0
        self.authorization = ""
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> ElasticsearchStandIn:
        MET["Elasticsearch"] = "ORBWEB_TEST_ELASTICSEARCH=http://…"
        app = web.Application()
        app.router.add_post("/_bulk", self._bulk)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _bulk(self, request: web.Request) -> web.Response:
        self.requests += 1
        self.authorization = request.headers.get("Authorization", "")
        body = await request.read()
        if self.status != 200:
            return web.Response(status=self.status, text="no")
        assert body.endswith(b"\n")
        lines = [json.loads(line) for line in body.splitlines()]
        results = [self._one(*pair) for pair in zip(lines[::2], lines[1::2], strict=True)]
        return web.json_response({"errors": True, "items": results})

    def _one(self, action: Document, source: Document) -> Document:
        ((verb, where),) = action.items()
        index = self.indexes.setdefault(where["_index"], {})
        if verb == "create":
            if status := self.refuse(source):
                error = {"type": "x", "reason": "failed to parse", "caused_by": {"reason": "why"}}
                return {verb: {"status": status, "error": error}}
            if where["_id"] in index:
                return {verb: {"status": 409, "error": {"reason": "version conflict"}}}
            index[where["_id"]] = source
            return {verb: {"status": 201}}
        params = source["script"]["params"]
        document = index.setdefault(where["_id"], dict(source["upsert"]))
        if document.get(params["field"]) is None or document[params["field"]] <= params["at"]:
            document.update(params["row"], **{params["field"]: params["at"]})
        return {verb: {"status": 200}}
