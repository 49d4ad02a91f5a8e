"""docs/command_line.md shows what the commands print: a page that was right once is not good enough."""

import re
import shlex
import textwrap

from tests.recorder import ROOT

PAGE = ROOT / "docs" / "command_line.md"
_UNCHECKED = re.compile(r"^ *```(text|console)\n(?! *\$ zoo )", re.MULTILINE)  # an output without its command


def shown():
    """(command, its output) of every console block."""
    for block in re.findall(r"^ *```console\n(.*?)^ *```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ zoo ", textwrap.dedent(block), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def settled(text):
    """Without what a newer build of some cubins changes: their number, their size, and what has been seen of them."""
    text = re.sub(r"(never run|\d+ passed|\d+ FAILED).*", "SEEN", text)
    return re.sub(r"\d+(\.\d+)? (cubins?|MB|for (Hopper|Blackwell))", "N", text).rstrip()


def test_the_outputs_shown_are_those_of_the_commands(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = list(shown())
    assert len(commands) >= 3 and not _UNCHECKED.search(PAGE.read_text())
    for command, output in commands:
        lines = re.escape(settled(output)).replace(re.escape("\n...\n"), "\n(?:.*\n)+?")  # a line of dots is any lines
        assert re.fullmatch(lines, settled(zoo_command(*shlex.split(command)).output)), command


def test_every_command_and_option_has_its_words():
    from zoo.cli import main

    page = PAGE.read_text()
    for name in main.list_commands(None):
        section = page.partition(f"## zoo {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for parameter in main.get_command(None, name).params:
            for option in (one for one in parameter.opts if one.startswith("--") and one != "--device"):
                assert option in section, f"zoo {name} {option}"
