"""What `orbweb genspider` does: it writes a spider that runs as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from orbweb.cli import show
from orbweb.cli.found import find_spiders
from orbweb.cli.new import class_name_of, filled, module_of, template
from orbweb.errors import ConfigError
from orbweb.model.url import BadUrlError, canonical_url, clean_url, host_of, with_scheme

FOLDER = Path("spiders")
"""Of a project; without it a spider goes into the working directory."""


def generate(name: str, url: str) -> None:
    """Write the file, and print it.

    Raises `ConfigError` when it or a spider of that name is there, for no name and for no URL.
    """
    module, spider = module_of(name), class_name_of(name)
    address, domain = _address(url)
    folder = FOLDER if FOLDER.is_dir() else Path()
    file = folder / f"{module}.py"
    if file.exists():
        raise ConfigError(f"{file} is there already: take another name, or remove it")
    for one in find_spiders(Path())[0]:
        if {name, module, spider} & {one.name, one.class_name}:
            raise ConfigError(
                f"{one.file} has a spider {one.name} already, and two of one name would share one "
                "queue: take another name"
            )
    known = {
        "spider": spider,
        "module": module,
        "file": str(file),
        "url": json.dumps(address),
        "domain": json.dumps(domain),
    }
    text = filled(template("genspider.py.txt"), known)
    file.write_text(text, encoding="utf-8")
    print(text, end="")
    show.note(f"{file} is written; it obeys robots.txt. Before you crawl a site of others, say who")
    show.note('you are: USER_AGENT = "mybot/1.0 (+https://you.example/bot)" in orbweb.toml. Next:')
    show.note(f"  orbweb run {file}")


def _address(url: str) -> tuple[str, str]:
    """The first page, and its domain as the rules know it."""
    try:
        address = clean_url(with_scheme(url.strip(), "https"))
        host = host_of(address)
    except BadUrlError as error:
        raise ConfigError(
            f"{url!r} is no address of a page ({error.why}); right would be https://news.example"
        ) from None
    domain = host if host.startswith("[") else host.partition(":")[0]
    return (address if urlsplit(address).path else canonical_url(address)), domain
