"""tools/check_docs.py finds what is hard to read, and nothing is found in the documentation."""

import subprocess
import sys

import pytest

from tests.recorder import ROOT
from tools import check_docs

LONG = "This sentence has " + "very " * 24 + "many words."

HARD = {
    "a long sentence": LONG,
    "a long sentence in a list": f"- {LONG}",
    "a long cell": "| what | it is |\n|---|---|\n| cell | one two three four five six seven eight nine ten eleven twelve thirteen |",
    "a sentence that begins with Of": "Of a product the rows are read.",
    "a private word": "The weights lie in memory.",
    "a private verb": "The kernel knows three formats.",
    "the same as a pronoun": "Other kernels do the same.",
    "those as a pronoun": "It reads scales and those of the weights.",
    "a ratio without a unit": "The kernel is faster: .84 at 64 rows.",
    "a bracket inside a bracket": "The tile (rows (128) by columns) is full.",
    "a chain of semicolons": "A is read; B is read; D is written.",
}


@pytest.mark.parametrize("text", HARD.values(), ids=HARD.keys())
def test_what_is_hard_to_read_is_found_once(text):
    assert len(check_docs.findings(f"The first paragraph is short.\n\n{text}\n\nThe last paragraph is short.\n")) == 1


def test_a_page_of_long_sentences_is_found_though_none_is_too_long():
    (finding,) = check_docs.findings(("This sentence " + "has " * 18 + "words. ") * 3)
    assert "on average" in finding.advice


def test_a_finding_names_its_line():
    assert check_docs.findings(f"Short.\n\n| a | b |\n|---|---|\n| c | d |\n\nShort.\n{LONG}\n")[0].line == 7


@pytest.mark.parametrize(
    "text",
    [
        "The kernel is 16 % faster than cuBLASLt at M = 64 (H200).",
        f"```python\n# {LONG}\n```",
        f"<!-- chips: written by tools/generate_docs.py -->\n{LONG}\n<!-- end of chips -->",
        f"Call `{LONG}` with [a link](of/a/{'long_' * 30}name.md).",
        "It is version 0.3 of the file zoo.h, e.g. for C.",
        "<!-- caption: written by x -->\n" + LONG + "\n<!-- end of caption -->\nBoth kernels read the same rows.",
    ],
)
def test_plain_english_code_and_generated_parts_are_not_found(text):
    assert not check_docs.findings(text)


def test_text_after_code_is_read_again():
    assert check_docs.findings(f"```sh\nzoo list\n```\n{LONG}")


def test_too_many_words_in_a_folder_are_found_and_bars_of_tables_count(tmp_path, monkeypatch):
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("| two cells | of words, as wc counts |\n")
    assert not list(check_docs.over_budget(tmp_path, 11))
    assert list(check_docs.over_budget(tmp_path, 10))


def test_the_documentation_is_easy_to_read():
    run = subprocess.run([sys.executable, "tools/check_docs.py"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
