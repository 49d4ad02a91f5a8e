"""The parts of build_cubins.py. Not shipped: only building needs them."""


class BuildError(Exception):
    """What is wrong with a table, a source or the compiler, in words for the person who writes them."""
