"""pytest plugin: runs scrapy-redis's own tests, written for pytest 6, against Orbweb's package."""

from __future__ import annotations

import unittest

import pytest

from orbweb.adapters.scrapy import install_as_scrapy_redis

install_as_scrapy_redis()


@pytest.fixture(autouse=True)
def nose_setup(request: pytest.FixtureRequest) -> None:
    """Call `setup()` of plain classes, as pytest did before version 8."""
    instance = request.instance
    if instance is not None and not isinstance(instance, unittest.TestCase):
        getattr(instance, "setup", lambda: None)()
