"""A drop-in for scrapy-redis: its names and settings, over a frontier that loses nothing."""

from __future__ import annotations

from orbweb.adapters.scrapy.addon import Addon
from orbweb.adapters.scrapy.alias import install_as_scrapy_redis
from orbweb.adapters.scrapy.connection import get_redis, get_redis_from_settings
from orbweb.adapters.scrapy.scheduler import Scheduler

__all__ = ["Addon", "Scheduler", "get_redis", "get_redis_from_settings", "install_as_scrapy_redis"]
__author__ = "Orbweb contributors"
__email__ = "https://pypi.org/project/orbweb/"
__version__ = "0.1.0"
