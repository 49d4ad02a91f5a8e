"""How words are laid out, letter by letter: columns, wrapped cells, paragraphs, what is cut, and how wide a line may be."""

import os
import sys

import pytest

from zoo.cli import text

HEADER = ("kernel", "cubins", "share", "words")
ROWS = [("gemm.a", 1234, "12.5%", "as fast as it can be"), ("scales", 7, "3%", "slow")]


@pytest.fixture
def columns(monkeypatch):
    return lambda number: monkeypatch.setenv("COLUMNS", str(number))


def test_columns_stand_two_apart_and_numbers_end_where_they_end(columns):
    columns(80)
    assert text.table(HEADER, ROWS) == (
        "kernel  cubins  share  words\n"
        "gemm.a    1234  12.5%  as fast as it can be\n"
        "scales       7     3%  slow"
    )  # fmt: skip
    assert text.columns(ROWS, indent=3) == "   gemm.a  1234  12.5%  as fast as it can be\n   scales     7     3%  slow"


@pytest.mark.parametrize(
    ("rows", "right"),
    [([("1,234",), ("5",)], True), ([("1.5",), ("20%",)], True), ([("1.5.2",), ("20",)], False), ([("-",), ("20",)], False), ([("",), ("20",)], False)],
)  # fmt: skip
def test_a_column_is_of_numbers_where_every_cell_is_one(rows, right):
    first = text.columns([(*one, "x") for one in rows]).splitlines()[1 if rows[0][0] == "1,234" else 0]
    short, wide = sorted((one for (one,) in rows), key=len)
    assert text.columns([(short, "x"), (wide, "x")]).splitlines()[0] == f"{short.rjust(len(wide)) if right else short.ljust(len(wide))}  x"
    assert first.endswith("x")


def test_the_last_column_is_the_first_to_wrap_and_then_the_widest(columns):
    columns(48)  # 24 are left for the last column, which is the least that it gets
    assert text.table(HEADER, [("gemm.a", 1, "1%", "words that are long enough to be wrapped")]) == (
        "kernel  cubins  share  words\n"
        "gemm.a       1     1%  words that are long\n"
        "                       enough to be wrapped"
    )  # fmt: skip
    rows = [("one two three four five six", 1, "a last cell of so many words")]
    assert text.table(("first", "n", "last"), rows) == "\n".join(
        (
            "first".ljust(21) + "  n  last",
            "one two three four".ljust(21) + "  1  a last cell of so many",
            "five six".ljust(21) + "     words",
        )
    )


def test_a_table_is_as_wide_as_it_may_be_and_not_one_more(columns):
    rows = [("a" * 10, "b" * 30)]
    columns(42)
    assert text.columns(rows) == f"{'a' * 10}  {'b' * 30}"
    columns(41)
    assert text.columns(rows) == f"{'a' * 10}, {'b' * 30}".replace(", ", ":\n  ") and text.columns(rows[:1], 1).startswith(" a")


def test_where_no_columns_fit_each_row_is_a_paragraph(columns):
    columns(20)
    rows = [("a_long_name_of_one_word", 12, "and more")]
    assert text.table(("name", "count", "words"), rows, indent=1) == " a_long_name_of_one_word:\n   count 12, words\n   and more"
    assert text.columns([("a_long_name_of_one_word", "another_long_one")]) == "a_long_name_of_one_word:\n  another_long_one"
    assert text.columns([("a_very_long_name_of_one_word",)]) == "a_very_long_name_of_one_word"


@pytest.mark.parametrize(("columns_said", "wanted"), [("60", 60), ("99", 99), ("100", 100), ("101", 100), ("300", 100)])
def test_a_line_is_as_long_as_the_terminal_and_up_to_100(columns, columns_said, wanted):
    columns(columns_said)
    assert text.width() == wanted and text.terminal_width() == int(columns_said)
    assert max(map(len, text.paragraph("x " * 200).splitlines())) in (wanted, wanted - 1)


def test_a_paragraph_of_a_row_leaves_out_empty_cells(columns):
    columns(40)
    assert text.table(("a", "b", "c"), [("long-" * 10, "", "x"), ("end", "", "")]) == f"{'long-' * 10}:\n  c x\nend"


def test_paragraphs_and_facts_hang_under_their_first_word(columns):
    columns(24)
    assert text.paragraph("one two three four five six", 2, 3) == "  one two three four\n     five six"
    assert text.fact("job", "of some words that wrap") == "job        of some words\n           that wrap"
    assert text.fact("a long label", "x") == "a long label x"
    assert text.paragraph("a/path-that-is/too-long-to/fit-in-a-line x") == "a/path-that-is/too-long-to/fit-in-a-line\nx"


@pytest.mark.parametrize(
    ("size", "said"),
    [(20, "one, two: three"), (15, "one, two: three"), (14, "one, two: t..."), (13, "one, two..."), (7, "one..."), (3, "..."), (1, "...")],
)
def test_what_is_cut_says_so_behind_a_word(size, said):
    assert text.cut("one, two: three", size) == said


@pytest.fixture
def terminal(monkeypatch, capsys):
    """stderr as a terminal of so many columns; None: one that does not say."""

    def of(size, chosen=None):
        def asked(descriptor):
            if size is None:
                raise OSError
            return os.terminal_size((size, 24))

        monkeypatch.setattr(os, "get_terminal_size", asked)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
        monkeypatch.delenv("COLUMNS", raising=False)
        if chosen is not None:
            monkeypatch.setenv("COLUMNS", chosen)
        return capsys

    return of


@pytest.mark.parametrize(
    ("size", "chosen", "wanted"),
    [(60, None, 60), (200, None, 100), (0, None, 80), (None, None, 80), (60, "40", 40), (60, "0", 60), (60, "x", 60), (60, "", 60)],
)
def test_a_refusal_on_a_terminal_is_folded_to_it(terminal, size, chosen, wanted):
    seen = terminal(size, chosen)
    exact, longer = "a" * (wanted // 2) + " " + "b" * (wanted - wanted // 2 - 1), "a" * (wanted // 2) + " " + "b" * (wanted - wanted // 2)
    text.echo_refusal(f"{exact}\n  kept\n{longer}\n")
    assert seen.readouterr().err == f"{exact}\n  kept\n{longer.replace(' ', chr(10))}\n"


def test_a_refusal_breaks_no_word_and_no_path_in_two(terminal):
    seen = terminal(30)
    text.echo_refusal("cannot read a/path-that-is/too-long-to/fit-in-a-line: tried-twice")
    assert seen.readouterr().err == "cannot read\na/path-that-is/too-long-to/fit-in-a-line:\ntried-twice\n"


def test_a_refusal_into_a_file_stays_as_it_is(capsys):
    text.echo_refusal("word " * 60 + "\n")
    assert capsys.readouterr().err == "word " * 60 + "\n"
