"""Micro-benchmarks of the compiled calls, by pytest-benchmark: `make bench-micro` runs them, saves the figures and
compares them with the last saved ones. They show what a change did to one call; bench/ has the figures of users' calls.
"""
