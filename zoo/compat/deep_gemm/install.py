"""python -m zoo.compat.deep_gemm: provides the module name `deep_gemm` in the current environment, takes it back, and tells what is there."""

from __future__ import annotations

import argparse
import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import zoo
from zoo.compat.deep_gemm import __all__ as names
from zoo.compat.deep_gemm import __version__, finder, real
from zoo.errors import ZooError

_MARK = "# of zoo.compat.deep_gemm; `python -m zoo.compat.deep_gemm --uninstall` removes it\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m zoo.compat.deep_gemm", description="DeepGEMM's names on zoo's kernels")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--install", action="store_true", help="provide the module name deep_gemm in this environment")
    what.add_argument("--uninstall", action="store_true", help="take it back")
    what.add_argument("--status", action="store_true", help="who provides deep_gemm, and which names")
    parser.add_argument(
        "--fall-through", action="store_true", help="with --install, where a DeepGEMM is installed: keep it for other names"
    )
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("purelib")), help="site-packages; default: of this Python")
    given = parser.parse_args(arguments)
    try:
        if given.install:
            _install(given.folder, given.fall_through)
        elif given.uninstall:
            _uninstall(given.folder)
        else:
            _status(given.folder)
    except ZooError as error:
        parser.exit(1, f"{error}\n")
    return 0


def _files(folder: Path) -> tuple[Path, Path]:
    """The finder, and what imports it at the start of Python: removed in the other order, so that no start of Python fails."""
    return folder / "_zoo_deep_gemm.py", folder / "zoo_deep_gemm.pth"


def installed(folder: Path) -> bool:
    return all(file.is_file() for file in _files(folder))


def _install(folder: Path, fall_through: bool) -> None:
    spec = real.found()
    if spec is not None and not fall_through:
        raise ZooError(
            f"a DeepGEMM is installed in {spec.origin}. It stays as it is. With --install --fall-through zoo's names come from zoo, and all "
            "others from it"
        )
    program, start = _files(folder)
    try:
        _write(program, _MARK + Path(finder.__file__).read_text())
        _write(start, "import _zoo_deep_gemm\n")
    except OSError as error:
        raise ZooError(
            f"{folder} cannot be written: {error}; use a virtual environment, or name another site-packages by --folder"
        ) from None
    print(f"deep_gemm is zoo {zoo.__version__}: {program}, {start}")
    if spec is not None:
        print(f"other names come from {spec.origin}")


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a start of Python in between sees the old file."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def _uninstall(folder: Path) -> None:
    program, start = _files(folder)
    if not program.exists() and not start.exists():
        print(f"nothing of zoo provides deep_gemm in {folder}")
        return
    if program.exists() and not program.read_text().startswith(_MARK):
        raise ZooError(f"{program} is not of zoo; nothing was removed")
    for file in (start, program):
        file.unlink(missing_ok=True)
    print(f"removed {program}, {start}")


def _status(folder: Path) -> None:
    on = installed(folder)
    spec = real.found()
    off = os.environ.get("ZOO_DEEP_GEMM") in ("0", "off")
    provider = f"zoo {zoo.__version__}, as {__version__}" if on and not off else spec.origin if spec is not None else "nobody"
    print(f"deep_gemm is provided by  {provider}{'; ZOO_DEEP_GEMM=0 switches zoo off' if on and off else ''}")
    print(f"installed by zoo          {'yes' if on else 'no'}, in {folder}")
    print(f"another DeepGEMM          {spec.origin if spec is not None else 'none'}")
    print(f"zoo's names               {' '.join(sorted(names))}")
