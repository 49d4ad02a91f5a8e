"""Files of times, and of tables, that a tool is given by name: what cannot be read is told in a sentence."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def read_json(path: Path, parser: argparse.ArgumentParser) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        parser.error(f"{path}: {error.strerror}")
    except (ValueError, RecursionError):
        parser.error(f"{path}: not JSON; it must be a file that a program in tools/lab has written")


def read_sweep(path: Path, keys: tuple[str, ...], parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """The results of a sweep, each with these keys."""
    results = read_json(path, parser)
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        parser.error(f"{path}: not a list of results; it must be a file that a sweep of tools/lab has written")
    for result in results:
        for key in keys:
            if key not in result:
                parser.error(f"{path}: a result has no '{key}'; it must be a file that a sweep of tools/lab has written")
    return results
