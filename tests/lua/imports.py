"""Twins of what lets in requests of others: `take.lua`, `restore.lua`."""

from __future__ import annotations

from typing import Any

from tests.lua.direct import run_now
from tests.lua.state import State
from tests.lua.twins import KEYS, Twins

from orbweb.errors import RunLost
from orbweb.frontier.base import NewRequest
from orbweb.frontier.memory_state import Run, Task

HOST = "h1"
MARK = "taken "


class Entries:
    """Entries that wait in a list, a sorted set and a set, which no script but `take` knows."""

    def __init__(self, twins: Twins) -> None:
        self._twins = twins
        self._waiting: dict[str, list[str]] = {}
        self._taken = 0
        twins.beside.append(self.state)

    def state(self) -> State:
        """What the servers must hold of them."""
        forms: State = {
            "list": list,
            "set": set,
            "zset": lambda names: {name: float(name[1:]) for name in names},
        }
        return {
            self._key(kind): forms[kind](found) for kind, found in self._waiting.items() if found
        }

    def put(self, kind: str, numbers: list[int]) -> None:
        names = [f"e{number}" for number in numbers]
        had = self._waiting.get(kind, [])
        if kind == "set":
            had = []
        self._waiting[kind] = had + [name for name in names if kind == "list" or name not in had]
        for backend in self._twins.backends:
            call, key = backend.client.call, self._key(kind)
            if kind == "list":
                call("RPUSH", key, *names)
            elif kind == "set":
                call("DEL", key)
                call("SADD", key, *names)
            else:
                call("ZADD", key, *(word for name in names for word in (name[1:], name)))

    def take(self, run: int, kind: str, most: int) -> Any:
        """Let the first ones enter as one request; see `take.lua`."""
        self._taken += 1
        words = (f"taken{self._taken}", HOST, most, MARK)
        memory = self._take(run, kind, most, words[0])
        for frontiers in self._twins.servers:
            frontier = frontiers[run]
            frontier.caller.time = self._twins.wall
            try:
                keys = (frontier.shard.tag, frontier.run.base, self._key(kind))
                answer = run_now(frontier.caller.call("take", keys, words))
            except RunLost:
                answer = RunLost
            assert answer == memory, f"take{words}: memory {memory}, server {answer}"
        return memory

    def _take(self, run: int, kind: str, most: int, id: str) -> Any:
        twin = self._twins.memory[run]
        if twin._base not in self._twins.shard.runs:
            return RunLost
        found = twin._begin()
        waiting = self._waiting.get(kind, [])
        if kind == "zset":
            waiting.sort(reverse=True)
        taken, self._waiting[kind] = waiting[:most], waiting[most:]
        if taken:
            payload = MARK + "".join(f"{len(word)}:{word}" for word in (self._key(kind), *taken))
            found.tasks[id] = Task(HOST, 0, payload.encode())
            twin._enqueue(found, id, found.tasks[id])
            twin._reopen(found)
            twin._finish(found)
        return len(taken)

    @staticmethod
    def _key(kind: str) -> str:
        return f"{KEYS.tag}:entries:{kind}"


def restore(twins: Twins, run: int, numbers: list[int], pages: int, linked: bool) -> Any:
    """Let exported requests enter, with pages that redirects had taken; see `restore.lua`."""
    requests = [
        NewRequest(f"r{number}", f"h{number % 3}", number - 2, None, b"restored")
        for number in numbers
    ]
    marks = {
        request.id: [9_000 + 10 * number + page for page in range(pages)]
        for number, request in zip(numbers, requests, strict=True)
    }
    link = NewRequest("behind", "h2", 0, None, b"a link")
    words: list[Any] = []
    for id, host, priority, _, payload, *_ in requests:
        text = f"{link.id}\n{link.host}\n0\n0\na link" if linked else ""
        pairs = [word for mark in marks[id] for word in (mark, text)]
        words += (id, host, priority, payload, pages, *pairs)
    twin = twins.memory[run]
    memory: Any = RunLost
    if twin._base in twins.shard.runs:
        found = twin._begin()
        new = [request for request in requests if request.id not in found.tasks]
        for request in new:
            _take_pages(found, request.id, marks[request.id], link if linked else None)
            task = Task(request.host, request.priority, request.payload)
            twin._enter(found, request.id, task)
        if new:
            twin._reopen(found)
        twin._finish(found)
        memory = len(new)
    for frontiers in twins.servers:
        frontiers[run].caller.time = twins.wall
        try:
            answer = run_now(frontiers[run]._call("restore", *words))
        except RunLost:
            answer = RunLost
        assert answer == memory, f"restore{words}: memory {memory}, server {answer}"
    return memory


def _take_pages(run: Run, id: str, marks: list[int], link: NewRequest | None) -> None:
    for mark in marks:
        run.visited[mark] = id
        if link:
            run.parked.setdefault(mark, link)
    if marks:
        run.visits[id] = marks
