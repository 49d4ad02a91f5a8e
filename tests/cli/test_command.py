"""What all commands share: quick to start, one line an error, exit codes for scripts."""

import subprocess
import sys

from tests.recorder import ROOT


def test_help_imports_neither_numpy_nor_the_driver():
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from zoo.cli import main\n"
        "result = CliRunner().invoke(main, ['--help'])\n"
        "assert result.exit_code == 0 and 'verify' in result.output, result.output\n"
        "print([name for name in ('numpy', 'ml_dtypes', 'cuda', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_refusal_is_one_line_without_a_traceback(zoo_command, tmp_path):
    result = zoo_command("--cubins", tmp_path, "list")
    assert result.exit_code == 1
    assert result.output.startswith("Error: cannot read the manifest") and result.output.count("\n") == 1


def test_misuse_exits_2(zoo_command):
    assert zoo_command("lsit").exit_code == 2
    assert zoo_command("verify", "--record").exit_code == 2
    assert zoo_command("show").exit_code == 2
    assert zoo_command("bench", "quantize.mxfp8.rows", "--shape", "8192,k").exit_code == 2
    assert zoo_command("bench", "quantize.mxfp8.rows", "--set", "layout").exit_code == 2
