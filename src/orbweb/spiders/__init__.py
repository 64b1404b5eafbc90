"""The classes that spiders derive from, and the one place that builds what they run on."""
