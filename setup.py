"""The packages of the wheel: the repository's root is the package `redpebble`, and each folder of code one below it."""

from setuptools import find_packages, setup

BESIDE = ["bench*", "build*", "docs*", "tests*", "typings*"]

# a script of another name would be taken for a module of the root
setup(
    script_name="setup.py", packages=["redpebble", *(f"redpebble.{folder}" for folder in find_packages(exclude=BESIDE))]
)
