"""For tests of spiders and of Orbweb: a web site that misbehaves on purpose, and its judge."""
