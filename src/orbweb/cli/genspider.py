"""What `orbweb genspider` does: it writes a spider that runs as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from orbweb.cli import show
from orbweb.cli.new import class_name_of, filled, module_of, template
from orbweb.errors import ConfigError
from orbweb.model.url import BadUrlError, host_of

FOLDER = Path("spiders")
"""Of a project; without it a spider goes into the working directory."""


def generate(name: str, url: str) -> None:
    """Write the file, and print it. Raises `ConfigError` when it is there, or for no URL."""
    address = url if "://" in url else f"https://{url}"
    try:
        host_of(address)
    except BadUrlError as error:
        raise ConfigError(
            f"{url!r} is no address of a page ({error.why}); right would be https://news.example"
        ) from None
    if not urlsplit(address).path:
        address += "/"
    module = module_of(name)
    folder = FOLDER if FOLDER.is_dir() else Path()
    file = folder / f"{module}.py"
    if file.exists():
        raise ConfigError(f"{file} is there already: take another name, or remove it")
    known = {
        "spider": class_name_of(name),
        "module": module,
        "file": str(file),
        "url": json.dumps(address),
        "domain": json.dumps(urlsplit(address).hostname or ""),
    }
    text = filled(template("genspider.py.txt"), known)
    file.write_text(text, encoding="utf-8")
    print(text, end="")
    show.note(f"{file} is written; it obeys robots.txt. Before you crawl a site of others, say who")
    show.note('you are: USER_AGENT = "mybot/1.0 (+https://you.example/bot)" in orbweb.toml. Next:')
    show.note(f"  orbweb run {file}")
