"""The simulator: whole fleets of the production engine in virtual time, with every fault there is.

`python -m orbweb.testing.simulator --runs 1000` runs seeds; a seed that fails is a test case.
"""
