"""`python -m orbweb` is the command `orbweb`."""

from orbweb.cli import main

if __name__ == "__main__":
    main()
