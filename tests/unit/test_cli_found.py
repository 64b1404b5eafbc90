"""Which spiders a directory has, as far as its files say without being executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbweb.cli.found import find_named, find_spiders
from orbweb.cli.genspider import generate
from orbweb.cli.new import class_name_of, module_of
from orbweb.cli.target import load_spider
from orbweb.errors import ConfigError

FILES = {
    "news.py": "import orbweb as mw\nclass News(mw.Spider):\n    name = 'daily'\n",
    "spiders/shop.py": (
        "from orbweb import AirSpider, Spider\n"
        "class Base(Spider[int]):\n    pass\n"
        "class Shop(Base):\n    name: str = NAME\n"
        "class Air(AirSpider):\n    pass\n"
        "class _Hidden(AirSpider):\n    pass\n"
        "class Table:\n    pass\n"
        "raise SystemExit('executed')\n"
    ),
    "spiders/loop.py": "class A(B):\n    pass\nclass B(A):\n    pass\n",
    "broken.py": "class (",
    "deep/er/far.py": "import orbweb\nclass Far(orbweb.Spider):\n    pass\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_spiders_are_found_by_their_bases_and_nothing_is_executed(folder: Path) -> None:
    spiders, broken = find_spiders(folder)
    assert [(one.name, one.kind, one.file.name, one.alone) for one in spiders] == [
        ("daily", "Spider", "news.py", True),
        ("Base", "Spider", "shop.py", False),
        ("Shop", "Spider", "shop.py", False),
        ("Air", "AirSpider", "shop.py", False),
    ]
    assert [line.partition(":")[0] for line in broken] == [str(folder / "broken.py")]


def test_a_spider_is_named_by_its_file_its_class_or_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    here = Path()
    assert find_named("shop", here) == "spiders/shop.py"
    assert find_named("daily", here) == find_named("News", here) == "news.py"
    assert find_named("Air", here) == "spiders/shop.py:Air"
    assert find_named("Table", here) is None
    assert load_spider("daily").__name__ == "News"


def test_a_name_that_two_spiders_have_names_none(folder: Path) -> None:
    (folder / "other.py").write_text(FILES["news.py"])
    assert find_named("daily", folder) is None


@pytest.mark.parametrize(
    ("url", "start", "domain"),
    [
        ("news.example", "https://news.example/", "news.example"),
        ("http://news.example:8080/a?b='\"", "http://news.example:8080/a?b='\"", "news.example"),
        ("news.example?b=1", "https://news.example/?b=1", "news.example"),
        ("中文.example", "https://xn--fiq228c.example/", "xn--fiq228c.example"),
        ("localhost:8000", "https://localhost:8000/", "localhost"),
    ],
)
def test_a_generated_spider_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, start: str, domain: str
) -> None:
    monkeypatch.chdir(tmp_path)
    generate("daily-news", url)
    spider = load_spider(str(tmp_path / "daily_news.py"))
    assert spider.__name__ == "DailyNewsSpider"
    assert (spider.start_urls, vars(spider)["allowed_domains"]) == ((start,), (domain,))
    with pytest.raises(ConfigError, match="is there already"):
        generate("daily-news", url)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(
            (name, "a letter first")
            for name in ("", "1", "2shops", "../x", "a/b", "news.py", "商店")
        ),
        *((name, "right would be my-class") for name in ("class", "Class")),
        *((name, f"hide the Python module {name}") for name in ("json", "orbweb", "redis")),
    ],
)
def test_what_is_no_name_of_a_spider_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"no good name for a spider: .*{said}"):
        generate(name, "a.example")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["", "a b", "https://", "mailto:x@y.example", "javascript:alert(1)", "ftp://a", "a:99999"],
)
def test_what_is_no_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no address .* right would be https://"):
        generate("a", url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["daily", "news-spider", "shop", "Air"])
def test_a_spider_that_is_there_is_not_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (folder / "air.py").write_text("import orbweb\nclass NewsSpider(orbweb.Spider):\n    pass\n")
    monkeypatch.chdir(folder)
    before = {file: file.read_bytes() for file in folder.rglob("*.py")}
    with pytest.raises(ConfigError, match="already"):
        generate(name, "a.example")
    assert {file: file.read_bytes() for file in folder.rglob("*.py")} == before


def test_a_spider_may_be_called_as_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generate("spider", "a.example")
    assert [one.class_name for one in find_spiders(tmp_path)[0]] == ["Spider"]


def test_names_become_files_and_classes() -> None:
    assert (module_of("My-shop"), class_name_of("My-shop")) == ("my_shop", "MyShopSpider")
    assert class_name_of("ShopSpider") == "ShopSpider"
