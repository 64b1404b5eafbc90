"""The files that `orbweb new` writes; `$name` and its like stand for what is asked for."""
