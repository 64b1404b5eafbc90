"""Commands of a Scrapy project: `COMMANDS_MODULE = "orbweb.adapters.scrapy.commands"`."""
