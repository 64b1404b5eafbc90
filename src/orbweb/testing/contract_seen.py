"""The contract of what is seen: every kind of filter, in every frontier that has it."""

from __future__ import annotations

import pytest

from orbweb.errors import ConfigError
from orbweb.frontier.base import NewRequest
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.testing.contract_store import Store, done, opened, page, pages, seeded


def seen_of(kind: str, **config: float) -> SeenConfig:
    return SeenConfig(SeenKind(kind), **config)  # type: ignore[arg-type]


class SeenContract:
    """Needs fixtures `store` and `seen_kind`, the kind's name."""

    async def test_two_pages_that_link_to_one_page_let_it_enter_once(
        self, store: Store, seen_kind: str
    ) -> None:
        node = await seeded(store, *pages("ab"), seen=seen_of(seen_kind))
        other = node.peer("B")
        (one,), (two,) = await node.take(1), await other.take(1)
        await node.frontier.ack([done(one, page("c"))])
        (three,) = await node.take()
        await node.finish(three)
        await node.frontier.ack([done(two, page("c"))])
        assert await other.ids() == []
        assert (await node.frontier.status()).reasons == {"done": 3, "duplicate_request": 1}

    async def test_thousands_of_new_pages_all_enter(self, store: Store, seen_kind: str) -> None:
        many = [page(f"p{n}", f"h{n % 7}") for n in range(4_000)]
        node = await seeded(store, *many, seen=seen_of(seen_kind))
        assert (await node.frontier.status()).queued == 4_000
        for lease in await node.take(4_000):
            await node.finish(lease)
        assert await node.frontier.add(many) == 0

    async def test_links_within_one_page_are_deduplicated(
        self, store: Store, seen_kind: str
    ) -> None:
        node = await seeded(store, page("a"), seen=seen_of(seen_kind))
        (lease,) = await node.take()
        await node.frontier.ack([done(lease, *pages("bcbcb"))])
        assert await node.ids() == ["b", "c"]

    async def test_runs_that_share_what_they_saw_skip_it(
        self, store: Store, seen_kind: str
    ) -> None:
        shared = {"seen": seen_of(seen_kind), "dedup_scope": "spider"}
        await seeded(store, *pages("ab"), run="1", **shared)
        node = await seeded(store, *pages("abc"), run="2", **shared)
        assert await node.ids() == ["c"]

    async def test_a_run_of_its_own_crawls_all_again(self, store: Store, seen_kind: str) -> None:
        await seeded(store, *pages("ab"), run="1", seen=seen_of(seen_kind))
        node = await seeded(store, *pages("ab"), run="2", seen=seen_of(seen_kind))
        assert await node.ids() == ["a", "b"]

    async def test_another_kind_may_not_join(self, store: Store, seen_kind: str) -> None:
        await opened(store, seen=seen_of(seen_kind))
        other = "exact" if seen_kind != "exact" else "compact"
        with pytest.raises(ConfigError, match=rf"{other}.*{seen_kind}"):
            await opened(store, seen=seen_of(other))

    async def test_another_kind_may_not_share_what_the_job_has_seen(
        self, store: Store, seen_kind: str
    ) -> None:
        await opened(store, run="1", seen=seen_of(seen_kind), dedup_scope="spider")
        other = "exact" if seen_kind != "exact" else "compact"
        with pytest.raises(ConfigError, match=rf"{other}.*{seen_kind}"):
            await opened(store, run="2", seen=seen_of(other), dedup_scope="spider")
        await opened(store, run="3", seen=seen_of(other))

    async def test_a_full_layer_is_followed_by_another(self, store: Store, seen_kind: str) -> None:
        config = seen_of(seen_kind, capacity=50, error_rate=1e-6)
        many = [page(f"p{n}") for n in range(300)]
        node = await seeded(store, *many, seen=config)
        assert (await node.frontier.status()).queued == 300
        await node.finish(*await node.take(300))
        assert await node.frontier.add(many) == 0


class ErringSeenContract:
    """For kinds that err: needs fixtures `store` and `seen_kind`."""

    async def test_what_no_error_may_drop_enters_whatever_the_filter_says(
        self, store: Store, seen_kind: str
    ) -> None:
        node = await seeded(store, *pages("ab"), seen=seen_of(seen_kind))
        await node.finish(*await node.take())
        assert await node.frontier.add([page("a")]) == 0
        marked = page("a")._replace(sure=True)
        assert await node.frontier.add([marked]) == 1, "it is not among those kept exactly"
        await node.finish(*await node.take())
        assert await node.frontier.add([marked]) == 0

    async def test_a_marked_request_is_seen_by_those_that_are_not(
        self, store: Store, seen_kind: str
    ) -> None:
        marked: NewRequest = page("a")._replace(sure=True)
        node = await seeded(store, marked, seen=seen_of(seen_kind))
        await node.finish(*await node.take())
        assert await node.frontier.add([page("a")]) == 0
