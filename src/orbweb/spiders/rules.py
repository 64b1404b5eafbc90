"""The rules of a spider's job, as its nodes tell them to the store for `orbweb explain`."""

from __future__ import annotations

import inspect
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orbweb.engine.job_rules import JobRules
from orbweb.errors import StoreUnavailable
from orbweb.frontier.jobbook import JobBook
from orbweb.log import get_logger
from orbweb.settings import Settings

if TYPE_CHECKING:
    from orbweb.spiders.base import BaseSpider

log = get_logger("orbweb.engine")


def robots_agent(settings: Settings) -> str:
    """The name that is looked for in robots.txt."""
    agent: str = settings["ROBOTS_USER_AGENT"] or settings["USER_AGENT"].split("/")[0].split()[0]
    return agent


def allowed_domains(settings: Settings, spider: BaseSpider | None = None) -> frozenset[str]:
    """Those of the settings, and of the spider's attribute that Scrapy has."""
    domains = (*settings["ALLOWED_DOMAINS"], *getattr(spider, "allowed_domains", ()))
    return frozenset(domain.lower() for domain in domains)


def job_rules(settings: Settings, spider: BaseSpider | None = None) -> JobRules:
    """The rules that follow from settings; `spider` adds its own domains."""
    return JobRules(
        depth_limit=settings["DEPTH_LIMIT"],
        url_length_limit=settings["URL_LENGTH_LIMIT"],
        allowed_domains=tuple(sorted(allowed_domains(settings, spider))),
        drop_query_params=tuple(settings["DROP_QUERY_PARAMS"]),
        exclude_urls=tuple(settings["EXCLUDE_URLS"]),
        include_urls=tuple(settings["INCLUDE_URLS"]),
        obey_robots=settings["ROBOTS_OBEY"],
        robots_agent=robots_agent(settings),
        spider=target_of(type(spider)) if spider is not None else "",
    )


async def tell_rules(book: JobBook, settings: Settings, spider: BaseSpider) -> None:
    """Tell the store. That it is away just now is no reason not to crawl."""
    try:
        await book.keep_rules(job_rules(settings, spider).encode())
    except StoreUnavailable as error:
        log.debug("the job's rules are not told: %s", error)


def target_of(kind: type[BaseSpider]) -> str:
    """How `orbweb run` names the spider in this directory; empty when that is not to be seen."""
    with suppress(TypeError, OSError, ValueError):
        path = Path(inspect.getfile(kind)).resolve().relative_to(Path.cwd().resolve())
        return f"{path}:{kind.__name__}"
    return ""
