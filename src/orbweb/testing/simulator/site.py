"""The site of a simulated run: a forest of pages with cross links and every kind of trouble."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

HOSTS = 4
ROOTS = 12


@dataclass(slots=True)
class Page:
    """One page. At most one of the troubles below."""

    name: str
    host: str
    items: int
    links: list[str] = field(default_factory=list)
    twins: list[str] = field(default_factory=list)
    """Links that are not deduplicated: each is a request of its own."""
    duration_ms: int = 100
    flaky: int = 0
    """How many of the first visits fail; more than the retries means: always."""
    poison: bool = False
    """Kills the node that fetches it."""
    raises: bool = False
    """Its callback raises after half of the links and all items."""
    bad_item: bool = False
    """Yields one more item, which the sink refuses."""
    stuck: bool = False
    """On the first visit its callback never ends."""
    plain_def: bool = False
    """Its callback is not async."""
    leads_to: str = ""
    """Redirects to this page, which has no trouble of its own."""

    @property
    def url(self) -> str:
        return f"http://{self.host}/{self.name}"

    @property
    def followed(self) -> list[str]:
        """The links that its callback yields before it ends or raises, or where it redirects to."""
        if self.leads_to:
            return [self.leads_to]
        return self.links[: len(self.links) // 2] if self.raises else self.links


@dataclass(slots=True)
class SiteMap:
    """All pages, and the seeds in their order; `twin_seeds` are not deduplicated."""

    pages: dict[str, Page]
    seeds: list[str]
    twin_seeds: set[int] = field(default_factory=set)
    """Positions in `seeds`."""
    apart: bool = False
    """Each seed is crawled for itself, with all that can be reached from it."""

    def redirects_to(self, name: str) -> int:
        """How often a page may be come to by a redirect."""
        times = len(self.seeds) if self.apart else 1
        return times * sum(page.leads_to == name for page in self.pages.values())

    def expected(self, dead_silent: set[str], max_retries: int) -> Counter[str]:
        """How many requests of each page must be made, given the pages whose links are unknown.

        `dead_silent`: pages that died without an answer, so that nothing of them had to enter.
        """
        found = Counter[str]()
        if self.apart:
            for seed in self.seeds:
                found += SiteMap(self.pages, [seed]).expected(dead_silent, max_retries)
            return found
        todo = []
        for position, name in enumerate(self.seeds):
            if position in self.twin_seeds or name not in found:
                if name not in found:
                    todo.append(name)
                found[name] += 1
        while todo:  # only seeds and twins are requested more than once, and twins are leaves
            page = self.pages[todo.pop()]
            if page.name in dead_silent or page.flaky > max_retries:
                continue
            for link in page.followed:
                if link not in found:
                    found[link] += 1
                    todo.append(link)
            if not page.raises:
                for link in page.twins:
                    found[link] += found[page.name]
        return found


def make_site(rng: random.Random, count: int, *, poison: bool, max_retries: int) -> SiteMap:
    """A site of `count` pages; the first are the seeds and nothing links to them."""
    names = [f"p{number}" for number in range(count)]
    pages = {
        name: Page(
            name,
            host=f"h{rng.randrange(HOSTS)}.test",
            items=rng.choice([0, 1, 1, 2, 3]),
            duration_ms=rng.choice([50, 100, 300, 900]),
            plain_def=rng.random() < 0.2,
        )
        for name in names
    }
    roots, others = names[:ROOTS], names[ROOTS:]
    for number, name in enumerate(others, ROOTS):
        pages[names[rng.randrange(number)]].links.append(name)
    for _ in range(count):
        pages[rng.choice(names)].links.append(rng.choice(others))
    if rng.random() < 0.3:
        hub = pages[rng.choice(names)]
        hub.links += rng.sample(others, min(len(others), 30))
    _add_troubles(rng, pages, names, max_retries)
    _add_twins(rng, pages, names)
    _add_redirects(rng, pages, others)
    if poison:
        targets = {page.leads_to for page in pages.values()}
        leaves = [
            page
            for page in (pages[name] for name in names)
            if not page.followed and not page.twins and page.name not in targets
        ]
        if leaves:
            victim = rng.choice(leaves)
            pages[victim.name] = Page(victim.name, victim.host, victim.items, poison=True)
    seeds = roots + rng.choices(roots, k=3)
    twin_seeds: set[int] = set()
    if rng.random() < 0.3:
        twin_seeds.add(len(seeds) - 1)
        if pages[seeds[-1]].flaky or pages[seeds[-1]].stuck:
            twin_seeds.clear()
    return SiteMap(pages, seeds, twin_seeds)


def _add_troubles(
    rng: random.Random, pages: dict[str, Page], names: list[str], max_retries: int
) -> None:
    for name in names:
        page, luck = pages[name], rng.random()
        if luck < 0.15:
            page.flaky = rng.randint(1, max_retries)
        elif luck < 0.17:
            page.flaky = 1000
        elif luck < 0.2:
            page.duration_ms = rng.randint(5_000, 20_000)
        elif luck < 0.22:
            page.raises = True
        elif luck < 0.24:
            page.bad_item = True
        elif luck < 0.25:
            page.stuck = True


def _add_twins(rng: random.Random, pages: dict[str, Page], names: list[str]) -> None:
    """One leaf page that some pages link to without deduplication."""
    if rng.random() < 0.7:
        return
    twin = Page("twin", "h0.test", items=2)
    for parent in rng.sample(names, 3):
        if len(pages[parent].links) < 8:
            pages[parent].twins.append(twin.name)
    pages[twin.name] = twin


def _add_redirects(rng: random.Random, pages: dict[str, Page], others: list[str]) -> None:
    """Some sites have leaf pages that only redirect to other pages of their host.

    Not to other hosts: a redirect takes no slot there (the limit of hosts is the claim's).
    """
    if rng.random() < 0.6:
        return
    sound = [
        page
        for page in (pages[name] for name in others)
        if not (page.flaky or page.raises or page.bad_item or page.stuck or page.twins)
    ]
    for page in rng.sample(sound, min(len(sound), 4)):
        targets = [
            each
            for each in sound
            if each is not page and not each.leads_to and each.host == page.host
        ]
        if not page.links and targets and not any(e.leads_to == page.name for e in sound):
            page.items = 0
            page.leads_to = rng.choice(targets).name
