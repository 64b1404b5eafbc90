"""Queues in Redis by scrapy-redis's names, keys and wire format.

For Orbweb's scheduler a queue class says in which order requests of one priority go out; they wait
in the frontier. Used by itself, a queue is what it was: a pop removes, and who dies then has lost
what it popped.
"""

from __future__ import annotations

import uuid
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from orbweb.adapters.scrapy import picklecompat
from orbweb.errors import UnserialisableError


def request_class(path: str) -> type[Request]:
    """The class of requests that a stored record names, if this process has it loaded.

    Nothing is imported. Raises `UnserialisableError` for any other name.
    """
    waiting: list[type[Request]] = [Request]
    while waiting:
        kind = waiting.pop()
        if f"{kind.__module__}.{kind.__name__}" == path:
            return kind
        waiting += kind.__subclasses__()
    raise UnserialisableError(
        f"a stored request is of class {path!r}, and no such class of requests is loaded here"
    )


class Base:
    """What the queues share. `key` may hold `%(spider)s`."""

    order: str
    """What the class means to Orbweb's scheduler: `priority`, `fifo` or `lifo`."""

    def __init__(self, server: Any, spider: Spider, key: str, serializer: Any = None) -> None:
        """`serializer` has `loads` and `dumps`; default: `picklecompat`, which executes nothing.

        Raises `TypeError` when it lacks one of them.
        """
        serializer = picklecompat if serializer is None else serializer
        for name in ("loads", "dumps"):
            if not hasattr(serializer, name):
                raise TypeError(f"serializer does not implement {name!r} function: {serializer}")
        self.server = server
        self.spider = spider
        self.key = key % {"spider": spider.name}
        self.serializer = serializer

    def _encode_request(self, request: Request) -> bytes:
        return self._packed(request.to_dict(spider=self.spider))

    def _packed(self, record: dict[str, Any]) -> bytes:
        packed: bytes = self.serializer.dumps(record)
        return packed

    def _decode_request(self, encoded_request: bytes) -> Request:
        record = self.serializer.loads(encoded_request)
        if not isinstance(record, dict):
            raise UnserialisableError(f"a stored request is a dict, not {record!r}")
        if "_class" in record:
            request_class(record["_class"])
        return request_from_dict(record, spider=self.spider)

    def __len__(self) -> int:
        raise NotImplementedError

    def push(self, request: Request) -> None:
        """Add a request. Raises `UnserialisableError`."""
        raise NotImplementedError

    def pop(self, timeout: float = 0) -> Request | None:
        """Remove the next request; None when there is none for `timeout` seconds."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove all requests."""
        self.server.delete(self.key)


class _ListQueue(Base):
    """Requests are pushed to the left end of a list."""

    _pop: str
    """The command that removes one; with a `b` in front of it waits."""

    def __len__(self) -> int:
        return int(self.server.llen(self.key))

    def push(self, request: Request) -> None:
        self.server.lpush(self.key, self._encode_request(request))

    def pop(self, timeout: float = 0) -> Request | None:
        if timeout > 0:
            found = getattr(self.server, f"b{self._pop}")(self.key, timeout)
            found = found[1] if found else None
        else:
            found = getattr(self.server, self._pop)(self.key)
        return self._decode_request(found) if found else None


class FifoQueue(_ListQueue):
    """First in, first out."""

    order = "fifo"
    _pop = "rpop"


class LifoQueue(_ListQueue):
    """Last in, first out."""

    order = "lifo"
    _pop = "lpop"


class PriorityQueue(Base):
    """Larger `priority` first. Requests are never merged, equal ones neither."""

    order = "priority"

    def __len__(self) -> int:
        return int(self.server.zcard(self.key))

    def _encode_request(self, request: Request) -> bytes:
        record = request.to_dict(spider=self.spider)
        return self._packed({**record, "_push": uuid.uuid4().hex})  # a zset merges equal members

    def push(self, request: Request) -> None:
        self.server.execute_command(
            "ZADD", self.key, -request.priority, self._encode_request(request)
        )

    def pop(self, timeout: float = 0) -> Request | None:
        """Remove the next request. Never waits, whatever `timeout` is, as in scrapy-redis."""
        pipe = self.server.pipeline()
        pipe.multi()
        pipe.zrange(self.key, 0, 0).zremrangebyrank(self.key, 0, 0)
        found, _ = pipe.execute()
        return self._decode_request(found[0]) if found else None


SpiderQueue = FifoQueue
SpiderStack = LifoQueue
SpiderPriorityQueue = PriorityQueue
