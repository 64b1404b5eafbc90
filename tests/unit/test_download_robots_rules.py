"""RFC 9309, clause by clause, and the cases that its authors' own parser is tested with."""

from __future__ import annotations

import pytest

from orbweb.download.robots_rules import Rules, deciding_rule

SITE = "http://foo.bar"


def allowed(text: str | bytes, path: str, agent: str = "FooBot") -> bool:
    body = text if isinstance(text, bytes) else text.encode()
    return Rules(body, agent).allow(SITE + path)


GROUPS = """allow: /foo/bar/

user-agent: FooBot
disallow: /
allow: /x/
user-agent: BarBot
disallow: /
allow: /y/


allow: /w/
user-agent: BazBot

user-agent: FooBot
allow: /z/
disallow: /
"""


@pytest.mark.parametrize(
    ("agent", "path", "expected"),
    [
        ("FooBot", "/x/b", True),
        ("FooBot", "/z/d", True),
        ("FooBot", "/y/c", False),
        ("BarBot", "/y/c", True),
        ("BarBot", "/w/a", True),
        ("BarBot", "/z/d", False),
        ("BazBot", "/z/d", True),
        ("FooBot", "/foo/bar/", False),
        ("BarBot", "/foo/bar/", False),
        ("BazBot", "/foo/bar/", False),
        ("Other", "/foo/bar/", True),
    ],
)
def test_groups(agent: str, path: str, expected: bool) -> None:
    """2.1, 2.2.1: several agents share rules, groups of one agent are one, rules need a group."""
    assert allowed(GROUPS, path, agent) is expected


@pytest.mark.parametrize("between", ["Sitemap: https://foo.bar/sitemap", "Unknown: x", "# y", ""])
def test_other_records_do_not_end_a_group(between: str) -> None:
    """2.2.4."""
    text = f"User-agent: BarBot\n{between}\nUser-agent: *\nDisallow: /\n"
    assert not allowed(text, "/", "FooBot")
    assert not allowed(text, "/", "BarBot")
    text = f"User-agent: FooBot\nDisallow: /a\n{between}\nDisallow: /b\n"
    assert not allowed(text, "/b")


@pytest.mark.parametrize(
    ("line", "agent", "is_ours"),
    [
        ("User-agent: FooBot", "FooBot", True),
        ("User-agent: foobot", "FooBot", True),
        ("USER-AGENT:FOOBOT", "foobot", True),
        ("  user-agent :  FooBot  # us", "FooBot", True),
        ("User-agent FooBot", "FooBot", True),
        ("User-agent: FooBot/2.1", "FooBot", True),
        ("User-agent: FooBot Bar", "FooBot", True),
        ("User-agent: Foo-Bot_x", "foo-bot_X", True),
        ("User-agent: Foo", "FooBot", False),
        ("User-agent: Bot", "FooBot", False),
        ("User-agent: FooBotNews", "FooBot", False),
        ("User-agent: *", "FooBot", True),
        ("User-agent: * baz", "FooBot", True),
        ("User-agent: *baz", "FooBot", False),
        ("User-agent:", "FooBot", False),
        ("foo: FooBot", "FooBot", False),
    ],
)
def test_which_group_is_ours(line: str, agent: str, is_ours: bool) -> None:
    """2.2.1: the product token, in any case, as a whole."""
    assert allowed(f"{line}\nDisallow: /\n", "/x", agent) is not is_ours


def test_everybodys_group_holds_only_without_one_of_ours() -> None:
    both = "User-agent: *\nDisallow: /\nUser-agent: FooBot\nAllow: /\n"
    assert allowed(both, "/x", "FooBot")
    assert not allowed(both, "/x", "BarBot")
    empty = "User-agent: FooBot\n\nUser-agent: *\nDisallow: /\n"
    assert not allowed(empty, "/x"), "consecutive lines of agents are one group"
    assert allowed("User-agent: FooBot\nDisallow:\nUser-agent: *\nDisallow: /\n", "/x")
    assert allowed("", "/x")


RULES = [
    # 2.2.2: the most octets win, and allow wins a tie
    ("disallow: /x/page.html\nallow: /x/", "/x/page.html", False),
    ("allow: /x/page.html\ndisallow: /x/", "/x/page.html", True),
    ("allow: /x/page.html\ndisallow: /x/", "/x/", False),
    ("disallow: /x/page.html\nallow: /x/page.html", "/x/page.html", True),
    ("disallow: \nallow: ", "/x/page.html", True),
    ("disallow: /\nallow: /", "/x/page.html", True),
    ("disallow: /x\nallow: /x/", "/x", False),
    ("disallow: /x\nallow: /x/", "/x/", True),
    ("disallow: /x/page.html\nallow: /x/page.html", "/x/page.html", True),
    ("allow: /page\ndisallow: /*.html", "/page.html", False),
    ("allow: /page\ndisallow: /*.html", "/page", True),
    ("allow: /x/page.\ndisallow: /*.html", "/x/page.html", True),
    ("allow: /x/page.\ndisallow: /*.html", "/x/y.html", False),
    ("allow: /p\ndisallow: /", "/page", True),
    ("allow: /folder\ndisallow: /folder", "/folder/page", True),
    ("allow: /$\ndisallow: /", "/", True),
    ("allow: /$\ndisallow: /", "/page.html", False),
    # paths are case-sensitive, names of records are not
    ("disalow: /x/", "/x/y", False),
    ("disallow /x/", "/x/y", False),
    ("DISALLOW: /X/", "/x/y", True),
    ("DisAllow: /x/", "/x/y", False),
    # 2.2.2, the table of encoded octets
    ("disallow: /foo/bar?baz=quz", "/foo/bar?baz=quz", False),
    ("disallow: /foo/bar?baz=http://foo.bar", "/foo/bar?baz=http://foo.bar", False),
    ("disallow: /foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", True),
    ("disallow: /foo/bar/\u30c4", "/foo/bar/%E3%83%84", False),
    ("disallow: /foo/bar/%E3%83%84", "/foo/bar/%E3%83%84", False),
    ("disallow: /foo/bar/%e3%83%84", "/foo/bar/%E3%83%84", False),
    ("disallow: /foo/bar/%62%61%7A", "/foo/bar/baz", False),
    ("disallow: /foo/bar/baz", "/foo/bar/%62%61%7A", False),
    # 2.2.3: special characters
    ("disallow: /foo/bar/quz", "/foo/bar/quz", False),
    ("disallow: /foo/*/quz", "/foo/bar/quz", False),
    ("disallow: /foo/*/quz", "/foo//quz", False),
    ("disallow: /foo/*/quz", "/foo/bar/baz", True),
    ("disallow: /*/quz", "/foo/bar/quz", False),
    ("disallow: /foo/bar$", "/foo/bar", False),
    ("disallow: /foo/bar$", "/foo/bar/qux", True),
    ("disallow: /foo/bar$", "/foo/bar/", True),
    ("disallow: /foo/bar$\nallow: /x", "/foo/barx", True),
    ("disallow: /foo # /bar", "/foo/bar", False),
    ("# disallow: /foo", "/foo", True),
    ("disallow: /path/file-with-a-%2A.html", "/path/file-with-a-*.html", False),
    ("disallow: /path/file-with-a-%2A.html", "/path/file-with-a-x.html", True),
    ("disallow: /path/foo-%24", "/path/foo-$", False),
    ("disallow: /path/foo-%24", "/path/foo-", True),
    # the examples of Google's documentation
    ("disallow: /fish", "/fish.html", False),
    ("disallow: /fish", "/fish/salmon", False),
    ("disallow: /fish", "/fishheads", False),
    ("disallow: /fish", "/Fish.asp", True),
    ("disallow: /fish", "/catfish", True),
    ("disallow: /fish*", "/fish?id=anything", False),
    ("disallow: /fish/", "/fish", True),
    ("disallow: /fish/", "/fish/?id=anything", False),
    ("disallow: /*.php", "/folder/filename.php?parameters", False),
    ("disallow: /*.php", "/", True),
    ("disallow: /*.php$", "/filename.php", False),
    ("disallow: /*.php$", "/filename.php?parameters", True),
    ("disallow: /*.php$", "/filename.php5", True),
    ("disallow: /fish*.php", "/fishheads/catfish.php?parameters", False),
    ("disallow: /fish*.php", "/Fish.PHP", True),
    # 2.2.2: the file itself is always allowed
    ("disallow: /", "/robots.txt", True),
]


@pytest.mark.parametrize(("rules", "path", "expected"), RULES)
def test_rules(rules: str, path: str, expected: bool) -> None:
    assert allowed(f"user-agent: FooBot\n{rules}\n", path) is expected


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_mark(end: str, start: bytes) -> None:
    """2.2: EOL is CR, LF or both; the file is UTF-8."""
    lines = ["User-agent: FooBot", "Allow: /a", "Disallow: /"]
    body = start + end.join(lines).encode()
    assert allowed(body, "/a")
    assert not allowed(body, "/b")


def test_bytes_that_are_no_utf8_spoil_one_line_only() -> None:
    body = b"User-agent: FooBot\nDisallow: /caf\xe9\nDisallow: /b\n"
    assert not allowed(body, "/b")
    assert allowed(body, "/c")


def test_a_page_of_html_forbids_nothing() -> None:
    assert allowed("<!DOCTYPE html>\n<html><head><title>Not here</title></head></html>", "/x")


@pytest.mark.parametrize(
    ("value", "seconds"), [("2.5", 2.5), ("10", 10.0), ("x", None), ("", None)]
)
def test_crawl_delay(value: str, seconds: float | None) -> None:
    text = f"User-agent: Other\nCrawl-delay: 99\n\nUser-agent: FooBot\nCrawl-delay: {value}\n"
    assert Rules(text.encode(), "FooBot").crawl_delay == seconds


def test_sitemaps_belong_to_everybody() -> None:
    text = "Sitemap: https://a.example/1.xml\nUser-agent: x\nDisallow: /\nsitemap:https://b/2\n"
    assert Rules(text.encode(), "FooBot").sitemaps == ("https://a.example/1.xml", "https://b/2")


FILE = b"""# a comment
User-agent: other
Disallow: /

User-agent: *
Disallow: /private/
Allow: /private/open
Disallow: /*?sort=
Dissallow: /typo

User-agent: named
User-agent: also
Disallow: /only-named   # why
"""


@pytest.mark.parametrize(
    ("agent", "path", "found"),
    [
        ("orbweb", "/private/x", (6, "Disallow: /private/", False)),
        ("orbweb", "/private/open/x", (7, "Allow: /private/open", True)),
        ("orbweb", "/list?sort=1", (8, "Disallow: /*?sort=", False)),
        ("orbweb", "/typo", (9, "Dissallow: /typo", False)),
        ("orbweb", "/free", None),
        ("other", "/free", (3, "Disallow: /", False)),
        ("also", "/only-named", (13, "Disallow: /only-named", False)),
        ("also", "/private/x", None),
    ],
)
def test_the_rule_that_decides_is_named_with_its_line(
    agent: str, path: str, found: tuple[int, str, bool] | None
) -> None:
    assert deciding_rule(FILE, agent, f"https://shop.test{path}") == found


def test_a_file_without_a_group_for_us_has_no_rule() -> None:
    assert deciding_rule(b"User-agent: other\nDisallow: /", "orbweb", "https://shop.test/") is None
