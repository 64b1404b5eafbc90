"""What `dedup stats|check|forget|export|import` do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.acts import read_host
from orbweb.cli.ages import read_age
from orbweb.cli.snapshot import Exporter, finish, load_snapshot, open_text, read_snapshot
from orbweb.cli.store import ask
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.seen_admin import SeenAdmin
from orbweb.frontier.seen_places import SeenPlace, SeenShard
from orbweb.frontier.weight import Weight
from orbweb.model.fingerprint import fingerprint
from orbweb.model.request import Request
from orbweb.model.url import host_of, why_unfetchable
from orbweb.settings import Settings


def stats(settings: Settings, job: str, run: str | None, *, as_json: bool) -> None:
    """Print how many URLs were seen, in what, how full it is, and how much memory all takes."""

    async def look(admin: Admin) -> tuple[SeenPlace, Weight]:
        place = await admin.seen.find(job, run)
        return place, await admin.weigh(place)

    place, weight = ask(settings, look)
    if as_json:
        show.as_json({**_record(place), **asdict(weight)})
        return
    print(f"{job} · {_owner(place)}: {show.counted(place.count, 'seen URL')}, kind {place.kind}")
    seen, waiting = (show.size(bytes_) for bytes_ in (weight.seen_bytes, weight.waiting_bytes))
    print(f"  memory of the store: about {seen} for seen URLs, {waiting} for what waits")
    several = len(place.shards) > 1
    if place.capacity:
        fullest = "the fullest shard " if several else ""
        print(f"  capacity {show.number(place.capacity)}, {fullest}{place.fill:.1%} used")
    if place.over_full:
        print("  OVER-FULL: it takes more and more new pages for seen ones")
    for shard in place.shards:
        _print_shard(shard, several=several)
    if place.sure:
        print(f"  {show.counted(place.sure, 'URL')} kept apart exactly (dedup='exact')")
    for host, times in sorted(place.forgotten_hosts.items()):
        print(f"  {host} was forgotten {show.counted(times, 'time')}")


def _print_shard(shard: SeenShard, *, several: bool) -> None:
    state, where = shard.state, "  "
    if several:
        used = f", {state.fill:.1%} used" if state.capacity else ""
        print(f"  shard {shard.number}: {show.number(state.count)}{used}")
        where = "    "
    for part in state.parts:
        end = f" of {show.number(part.capacity)}" if part.capacity else ""
        since = show.moment(part.begun_ms)
        print(f"{where}part {part.number}: {show.number(part.count)}{end}, since {since}")


def _owner(place: SeenPlace) -> str:
    return "all runs" if place.run is None else f"run {place.run or 'default'}"


def _record(place: SeenPlace) -> dict[str, Any]:
    return {
        "job": place.job,
        "run": place.run,
        "kind": str(place.kind),
        "seen": place.count,
        "capacity": place.capacity,
        "fill": round(place.fill, 4),
        "over_full": place.over_full,
        "sure": place.sure,
        "forgotten_hosts": place.forgotten_hosts,
        "shards": [_shard_record(shard) for shard in place.shards],
    }


def _shard_record(shard: SeenShard) -> dict[str, Any]:
    state = shard.state
    return {
        "number": shard.number,
        "seen": state.count,
        "capacity": state.capacity,
        "fill": round(state.fill, 4),
        "warned_at_ms": state.warned_at_ms,
        "full_at_ms": state.full_at_ms,
        "parts": [
            {
                "number": part.number,
                "seen": part.count,
                "capacity": part.capacity,
                "layer": part.layer,
                "begun_ms": part.begun_ms,
            }
            for part in state.parts
        ],
    }


def check(
    settings: Settings,
    job: str,
    run: str | None,
    urls: Sequence[str],
    made_by: str | None,
    *,
    as_json: bool,
) -> bool:
    """Print of each URL whether it counts as seen; True when all do. `made_by`: see `_key`."""

    async def look(admin: Any) -> list[bool]:
        seen: SeenAdmin = admin.seen
        place = await seen.find(job, run)
        return [await seen.check(place, *_key(settings, url, made_by)) for url in urls]

    found = ask(settings, look)
    if as_json:
        show.as_json(
            [{"url": url, "seen": is_seen} for url, is_seen in zip(urls, found, strict=True)]
        )
        return all(found)
    for url, is_seen in zip(urls, found, strict=True):
        print(f"{'seen' if is_seen else 'new '}  {url}")
    return all(found)


def forget(
    settings: Settings,
    job: str,
    run: str | None,
    urls: Sequence[str],
    *,
    host: str | None,
    older_than: str | None,
    yes: bool,
    made_by: str | None = None,
) -> None:
    """Let URLs, all of a host, or old generations enter again."""
    if sum((bool(urls), host is not None, older_than is not None)) != 1:
        raise ConfigError("what is to be forgotten? Give URLs, or --host, or --older-than")
    host = None if host is None else read_host(host)
    age_ms = age_seconds(older_than) * 1000 if older_than is not None else 0
    what = f"all URLs of {host}" if host else f"generations older than {older_than}"
    if not urls and not show.agree(f"Forget {what} that {job} has seen?", yes):
        print("nothing was done")
        return

    async def act(admin: Any) -> None:
        seen: SeenAdmin = admin.seen
        place = await seen.find(job, run)
        for url in urls:
            found = await seen.forget(place, *_key(settings, url, made_by))
            print(f"{'forgotten' if found else 'not seen '}  {url}")
        if host:
            await seen.forget_host(place, host)
            print(f"{host} is forgotten: its pages are new again")
        if older_than is not None:
            print(f"{show.counted(await seen.forget_older(place, age_ms), 'URL')} forgotten")
            if not place.generation_ms:
                show.note("all is one generation: DEDUP_GENERATION was 0 when it was made")

    ask(settings, act)


def export(settings: Settings, job: str, run: str | None, path: Path) -> None:
    """Write what was seen and what waits into a file. Raises `ConfigError` if it cannot be made."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file: an export takes the place of what has its name")

    async def act(admin: Any) -> None:
        seen: SeenAdmin = admin.seen
        place = await seen.find(job, run)
        if place.kind in (SeenKind.BLOOM_MODULE, SeenKind.LOCAL):
            raise ConfigError(
                f"{job} remembers seen URLs as {place.kind}, which cannot be read piece by "
                "piece; exact, compact, set and bloom can be exported"
            )
        temporary = path.with_name(f".{path.stem}.part{path.suffix}")
        try:
            with open_text(temporary, "w") as file:
                exporter = Exporter(seen, place, file)
                await exporter.write()
            finish(temporary, path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        counts = exporter.counts
        print(
            f"{path}: {show.counted(counts.seen, 'seen URL')}, "
            f"{show.counted(counts.requests, 'request')} that had not ended"
        )

    ask(settings, act)


def import_(settings: Settings, job: str, run: str | None, path: Path) -> None:
    """Put what an export holds into a run."""
    snapshot = read_snapshot(path)
    run_id = run if run is not None else settings["RUN_ID"]
    scope = settings["DEDUP_SCOPE"]
    if scope == "auto":
        scope = "run" if run_id else "spider"

    async def act(admin: Any) -> None:
        counts = await load_snapshot(admin.seen, snapshot, job, run_id, scope=scope)
        print(
            f"{job}: {show.counted(counts.seen, 'URL')} count as seen, "
            f"{show.counted(counts.requests, 'request')} wait"
        )

    ask(settings, act)


def age_seconds(text: str) -> int:
    """`30d`, `12h`, `90m`, `45s`, `2w` in seconds. Raises `ConfigError`."""
    age = read_age(text)
    if age is None:
        raise ConfigError(
            f"--older-than {text}: a number and s, m, h, d or w is wanted, such as 30d"
        )
    return age


def _key(settings: Settings, url: str, made_by: str | None) -> tuple[int, str]:
    """The fingerprint of a page and its host, for jobs of Orbweb's own spiders or of Scrapy's."""
    if made_by is not None:
        return _scrapy_key(url, made_by)
    request = Request(url)
    if request.problem is not None:
        raise ConfigError(f"{url}: {why_unfetchable(url) or request.problem.text()}")
    number = fingerprint(request, frozenset(settings["DROP_QUERY_PARAMS"]))
    return number, host_of(request.url)


def _scrapy_key(url: str, made_by: str) -> tuple[int, str]:
    try:
        from orbweb.adapters.scrapy.identity import link_key
    except ImportError as error:
        raise ConfigError("this needs Scrapy: pip install 'orbweb[scrapy]'") from error
    try:
        return link_key(url, made_by)
    except ValueError as error:
        raise ConfigError(f"{url}: {error}") from None
