"""Orbweb inside other frameworks."""
