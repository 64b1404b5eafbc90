"""By which rules a job takes links: told to the store by its nodes, read by who explains a URL."""

from __future__ import annotations

import msgspec

from orbweb.engine.outputs import LinkRules


class JobRules(msgspec.Struct, frozen=True):
    """The rules as the last node that began had them."""

    depth_limit: int = 0
    url_length_limit: int = 0
    allowed_domains: tuple[str, ...] = ()
    drop_query_params: tuple[str, ...] = ()
    exclude_urls: tuple[str, ...] = ()
    include_urls: tuple[str, ...] = ()
    obey_robots: bool = True
    robots_agent: str = "*"
    spider: str = ""
    """How `orbweb run` names it, as far as that is known."""

    @property
    def links(self) -> LinkRules:
        return LinkRules(
            self.depth_limit,
            self.url_length_limit,
            frozenset(self.allowed_domains),
            self.drop_params,
            self.exclude_urls,
            self.include_urls,
        )

    @property
    def drop_params(self) -> frozenset[str]:
        return frozenset(self.drop_query_params)

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, text: bytes) -> JobRules | None:
        """None for what another version wrote."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError:
            return None
