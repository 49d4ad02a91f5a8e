"""A change of any code that a unit is made of must change its digest; nothing else may."""

import pytest

from tools.builder import BuildError
from tools.builder.sources import Sources

UNIT = '#include "family/kernel.cu"\n'


def tree(root, **files):
    defaults = {"family/kernel.cu": '#include "near.cuh"\n#include <common/far.cuh>\n#include <cstdint>\n',
                "family/near.cuh": '#include "../common/deep.cuh"\n', "common/far.cuh": "", "common/deep.cuh": "", "common/other.cuh": ""}  # fmt: skip
    for name, text in {**defaults, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def digest(root, unit=UNIT, *more):
    return Sources([root, *more]).digest(unit)


@pytest.mark.parametrize("name", ["family/near.cuh", "common/far.cuh", "common/deep.cuh"])
def test_a_changed_include_at_any_depth_changes_the_digest(tmp_path, name):
    before = digest(tree(tmp_path))
    (tmp_path / name).write_text((tmp_path / name).read_text() + "int changed;\n")
    assert digest(tmp_path) != before


def test_a_changed_unit_changes_the_digest(tmp_path):
    tree(tmp_path)
    assert digest(tmp_path, UNIT + "#define X 1\n") != digest(tmp_path)


def test_a_file_nobody_includes_does_not_count(tmp_path):
    before = digest(tree(tmp_path))
    (tmp_path / "common/other.cuh").write_text("int changed;\n")
    assert digest(tmp_path) == before


def test_the_folder_does_not_count(tmp_path):
    assert digest(tree(tmp_path / "one")) == digest(tree(tmp_path / "two" / "deeper"))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("int a; // old\n", "int a;\n"),
        ("int a;\n\n// a line\nint b;\n", "int a;\nint b;\n"),
        ("int /* two\nlines */ a;\n", "int a;\n"),
        ("    int a;\n", "int  a;\n"),
        ("int a =\n    1;\n", "int a = 1;\n"),
        ("int a;\n\n#define A 1  // one\n\nint b;\n", "int a;\n#define A 1\nint b;\n"),
    ],
)
def test_comments_and_spaces_do_not_count(tmp_path, one, two):
    assert digest(tree(tmp_path / "one", **{"common/deep.cuh": one})) == digest(tree(tmp_path / "two", **{"common/deep.cuh": two}))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('auto a = "// old";\n', 'auto a = "// new";\n'),
        ('auto a = "\\"// old";\n', 'auto a = "\\"// new";\n'),
        ('char a = \'"\'; auto b = "// old";\n', 'char a = \'"\'; auto b = "// new";\n'),
        ('auto a = "two  spaces";\n', 'auto a = "two spaces";\n'),
        ('auto a = R"(\n// old)";\n', 'auto a = R"(\n// new)";\n'),
        ("int a = b/**/c;\n", "int a = bc;\n"),
        ("#define A b\nc\n", "#define A b c\n"),
        ("#define A b \\\nc\n", "#define A b\nc\n"),
        ("#pragma once\n#define A\n", "#pragma once #define A\n"),
        ("int a;\n#define A\n", "int a; #define A\n"),
        ("// line 1\nint a = __LINE__;\n", "int a = __LINE__;\n"),
        ("// line 1\nvoid a() { assert(b); }\n", "void a() { assert(b); }\n"),
    ],
)
def test_what_looks_like_a_comment_and_what_depends_on_lines_counts(tmp_path, one, two):
    assert digest(tree(tmp_path / "one", **{"common/deep.cuh": one})) != digest(tree(tmp_path / "two", **{"common/deep.cuh": two}))


def test_moving_a_byte_from_one_file_to_the_next_changes_the_digest(tmp_path):
    one = digest(tree(tmp_path / "one", **{"common/deep.cuh": "ab", "common/far.cuh": "c"}))
    two = digest(tree(tmp_path / "two", **{"common/deep.cuh": "a", "common/far.cuh": "bc"}))
    assert one != two


def test_headers_of_a_second_root_count(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    tree(second)
    (first / "family").mkdir(parents=True)
    (first / "family/kernel.cu").write_text('#include "common/far.cuh"\n')
    before = digest(first, UNIT, second)
    (second / "common/far.cuh").write_text("int changed;\n")
    assert digest(first, UNIT, second) != before


def test_files_that_include_each_other_end(tmp_path):
    tree(tmp_path, **{"common/deep.cuh": '#include "far.cuh"\n', "common/far.cuh": '#include "deep.cuh"\n'})
    assert len(digest(tmp_path)) == 64


def test_an_include_behind_a_condition_counts(tmp_path):
    tree(tmp_path, **{"common/far.cuh": '#if 0\n#include "other.cuh"\n#endif\n'})
    before = digest(tmp_path)
    (tmp_path / "common/other.cuh").write_text("int changed;\n")
    assert digest(tmp_path) != before


def test_an_include_of_a_macro_is_refused(tmp_path):
    tree(tmp_path, **{"common/far.cuh": "int a;\n#include HEADER\n"})
    with pytest.raises(BuildError, match=r"common/far.cuh:2: #include of a macro"):
        digest(tmp_path)
