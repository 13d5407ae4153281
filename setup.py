"""The packages of the wheel: the repository's root is the package `redpebble`, and each folder of code one below it."""

from setuptools import find_packages, setup

BESIDE = ["bench*", "build*", "docs*", "tests*", "typings*"]

setup(packages=["redpebble", *(f"redpebble.{folder}" for folder in find_packages(exclude=BESIDE))])
