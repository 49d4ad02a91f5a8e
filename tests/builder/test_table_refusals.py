"""Tables that are wrong: each mistake is named, with the table's path, before anything is compiled."""

import pytest

from tests.builder.build_trees import SOURCE, TABLE, edited, write_tree
from tools.builder import BuildError
from tools.builder.expand import expand
from tools.builder.scope import check_scope
from tools.builder.table import read_tables

MAP = '{ tensor_map = "x", dtype = "f32", dims = ["K", "M"], strides = ["4 * x_stride"], box = ["32", "THREADS"] }'
LAST = '"const float* bias"]'


def with_map(*changes: tuple[str, str]) -> list[tuple[str, str]]:
    """The changes of a table whose kernel takes the map, changed."""
    return [(LAST, '"const float* bias", "map x_map"]'), ("values = {", f"values = {{ x_map = {edited(MAP, *changes)},")]


def with_value(text: str) -> list[tuple[str, str]]:
    """The changes of a table whose launch says one more value."""
    return [("values = {", f"values = {{ {text},")]


MISTAKES = {
    "unknown key": ([('summary = "a test"', 'sumary = "a test"')], "unknown key 'sumary'; did you mean 'summary'?"),
    "misspelt key": ([('words = "K', 'word = "K')], "constraints[0] has the unknown key 'word'; did you mean 'words'?"),
    "key too many": ([("[promises]", "sources = 1\n[promises]")], "unknown key 'sources'"),
    "not TOML": ([("[promises]", "[promises")], "not TOML"),
    "name outside the grammar": ([("quantize.mxfp8.rows", "quantize.mxfp9.rows")], "'mxfp9', expected one of fp8b128"),
    "op outside the grammar": ([("quantize.mxfp8.rows", "quantise.mxfp8.rows")],
                               "op 'quantise' is not one of quantize, dequantize, requantize, scales, pack, unpack, gemm, experts, norm; names come from the closed lists in zoo/contract/names.py, and from names.toml at the root of the tables"),
    "word too many in the name": ([("quantize.mxfp8.rows", "quantize.mxfp8.rows.fast")], "'fast' fits no field of quantize; names come from the closed lists"),
    "source that is not there": ([("copy.cu", "cpoy.cu")], "does not exist"),
    "promise that is no yes or no": ([("deterministic = true", 'deterministic = "yes"')], "promises.deterministic is 'yes', expected true or false"),
    "default outside the values": ([('default = "once"', 'default = "thrice"')], "options.mode.default is 'thrice', expected one of once, twice"),
    "value twice": ([('["once", "twice"]', '["once", "once"]')], "options.mode.values is ['once', 'once'], expected a list of one or more names, none twice"),
    "value that is no name": ([('["once", "twice"]', '["once", "2x"]')], "options.mode.values[1] is '2x', expected a name"),
    "option that is no name": ([("[options.mode]", '[options."a b"]')], "options has the key 'a b', expected a name"),
    "argument of no kind": ([('name = "x"', 'name = "x"\nkind = "matrix"')], "arguments[x].kind is 'matrix', expected one of array, scalar"),
    "scalar with what only arrays have": ([('kind = "scalar"', 'kind = "scalar"\naccess = "read"')], "arguments[alpha] has the unknown key 'access'"),
    "strides beside forms": ([('access = "write"', 'access = "write"\nstrides = ["1"]')], "arguments[y] has 'forms' beside 'shape' or 'strides'"),
    "array without a shape": ([('shape = ["K"]\n', "")], "arguments[bias] has neither 'shape' nor 'forms'"),
    "unknown dtype": ([('dtypes = ["f32"]', 'dtypes = ["e3m4"]')], "arguments[x].dtypes[0] is 'e3m4', expected one of bf16, "),
    "scalar of an array's dtype": ([('dtypes = ["i32"]', 'dtypes = ["bf16"]')], "arguments[count].dtypes is ['bf16'], expected one of i32, i64, f32 for a scalar"),
    "unknown access": ([('access = "read"', 'access = "reads"')], "arguments[x].access is 'reads', expected one of read, write"),
    "default that does not fit": ([("default = 1\n", "default = 2147483648\n")], "arguments[count].default is 2147483648, expected an integer that fits 32 bits"),
    "alignment": ([("alignment = 16", "alignment = 24")], "arguments[x].alignment is 24, expected a power of two"),
    "strides of another rank": ([('["x_stride", "1"]', '["x_stride"]')], "arguments[x].strides is ['x_stride'], expected 2 expressions"),
    "shape beside forms": ([('access = "write"', 'access = "write"\nshape = ["M"]')], "'forms' beside 'shape'"),
    "argument twice": ([('name = "bias"', 'name = "y"')], "an argument 'y' is already"),
    "argument named as an option": ([('name = "bias"', 'name = "mode"')], "an argument 'mode' is already"),
    "argument named as a symbol": ([('name = "bias"', 'name = "m_"'), ('shape = ["K"]', 'shape = ["m_"]'), ("float* bias", "float* m_")],
                                   "the symbol 'm_' is also an argument"),
    "argument named as a function": ([('name = "bias"', 'name = "min"')], "is a word of the expression language"),
    "derived symbol that a shape binds": ([('SIZE = "M * K"', 'SIZE = "M * K"\nM = "K"')], "derived.M: a shape or a scalar already binds"),
    "derived symbol named as an argument": ([('SIZE = "M * K"', 'SIZE = "M * K"\nbias = "M"')], "derived: a derived symbol 'bias' is already"),
    "derived symbol named as an option": ([('SIZE = "M * K"', 'SIZE = "M * K"\nmode = "M"')], "derived: a derived symbol 'mode' is already"),
    "derived symbol named as a function": ([('SIZE = "M * K"', 'SIZE = "M * K"\nmin = "M"')], "is a word of the expression language"),
    "constant that a shape binds": ([("{ THREADS = 64 }", "{ THREADS = 64, K = 3 }")], "the constant K is also a symbol"),
    "constant of no integer": ([("{ THREADS = 64 }", '{ THREADS = "64" }')], "tiles[t64].constants.THREADS is '64', expected an integer of 32 bits"),
    "broken expression": ([('"ceil_div(SIZE, THREADS)"', '"ceil_div(SIZE THREADS)"')], "is not an expression"),
    "unknown symbol": ([('"ceil_div(SIZE, THREADS)"', '"ceil_div(SIZES, THREADS)"')], "reads 'SIZES', which nothing binds with mode.once"),
    "misspelling": ([('"ceil_div(SIZE, THREADS)"', '"ceil_div(SIZES, THREADS)"')], "did you mean 'SIZE'?"),
    "a map for a pointer": (with_value(f"y = {MAP}"), "launch.default.parameters.y is {'tensor_map': 'x', "),
    "a map for a number": (with_value(f"count = {MAP}"), "launch.default.parameters.count is {'tensor_map': 'x', "),
    "a map that is also a number": (with_map((" }", ", i32 = 1 }")), "launch.default.parameters.x_map: a parameter has exactly one of "),
    "unknown symbol in a constraint": ([('"K % 4 == 0"', '"N % 4 == 0"')], "constraints[0].expression: 'N % 4 == 0' reads 'N'"),
    "unknown symbol in a cost": ([('cost = "THREADS"', 'cost = "THREAD"')], "tiles[t64].cost: 'THREAD' reads 'THREAD'"),
    "unknown symbol in a shape": ([('["2", "M", "K"]', '["2", "M * N", "K"]')], "arguments[y]: 'M * N' reads 'N', which nothing binds with mode.twice"),
    "symbol of another option": ([('"y_stride if mode.once else K"', '"y_stride"')], "reads 'y_stride', which nothing binds with mode.twice"),
    "symbol on the wrong side": ([('"y_stride if mode.once else K"', '"y_stride if not mode.once else K"')], "nothing binds with mode.twice"),
    "constants in derived": ([('SIZE = "M * K"', 'SIZE = "M * K * THREADS"')], "derived.SIZE: 'M * K * THREADS' reads 'THREADS'"),
    "derived before it is there": ([('SIZE = "M * K"', 'SIZE = "M * TWO"\nTWO = "2 * K"')], "reads 'TWO'"),
    "unknown flag": ([('when = "mode.twice"', 'when = "mode.thrice"')], "reads 'mode.thrice'; forms are chosen by flags alone"),
    "form by a symbol": ([('when = "mode.twice"', 'when = "M > 4"')], "when 'M > 4' reads 'M'; forms are chosen by flags alone"),
    "no form holds": ([('when = "mode.twice"', 'when = "mode.once"')], "no form's 'when' holds with mode.twice"),
    "argument never used": ([(', "const float* bias"', "")], "arguments[bias]: no launch passes it"),
    "scalar never used": ([('"int count", ', "")], "arguments[count]: no launch passes it"),
    "derived never used": ([('SIZE = "M * K"', 'SIZE = "M * K"\nMORE = "M"')], "derived.MORE: nothing reads it"),
    "pointer to a scalar": (with_value('y = "alpha"'), "launch.default.parameters.y.pointer is 'alpha', expected an array argument; those are: x, y, bias"),
    "f32 of an integer": (with_value('alpha = "count"'), "launch.default.parameters.alpha.f32 is 'count', expected an f32 scalar; those are: alpha"),
    "a map of a scalar": (with_map(('"x"', '"alpha"')), "launch.default.parameters.x_map.tensor_map is 'alpha', expected an array argument"),
    "a map of nothing": (with_map(("tensor_map", "map")), "exactly one of"),
    "values that are no table": ([('values = { stride = "y_stride if mode.once else K" }', "values = 3")], "launch.default.values: must be a table, got 3"),
    "grid of two": ([('"ceil_div(SIZE, THREADS)", "1", "1"', '"ceil_div(SIZE, THREADS)", "1"')], "launch.default.grid is ['ceil_div(SIZE, THREADS)', '1'], expected a list of 3 expressions"),
    "unknown launch": ([('cost = "THREADS"', 'launch = "fast"')], "variants.tiles[t64].launch is 'fast', expected default"),
    "launch of no tile": ([("[variants]", '[launch.other]\nlike = "default"\n[variants]')],
                          "launch.other: no tile is started this way"),
    "arch without feature class": ([('["sm_90a", "sm_100f"]', '["sm_90"]')], "variants.arch[0] is 'sm_90', expected sm_<number> with a or f"),
    "tile of a foreign arch": ([('cost = "THREADS"', 'arch = ["sm_120a"]')], "variants.tiles[t64].arch is 'sm_120a', expected one of sm_90a, sm_100f"),
    "tile of a foreign dtype": ([('cost = "THREADS"', 'dtypes = { x = ["bf16"] }')], "x is never 'bf16', only f32"),
    "tile of a foreign option": ([('cost = "THREADS"', 'options = { made = ["once"] }')], "nothing is named 'made'"),
    "tile of nothing": ([('cost = "THREADS"', "arch = []")], "tiles[t64]: fits no arch, dtypes and options"),
    "a tile's source that is not there": ([('cost = "THREADS"', 'source = "cpoy.cu"')], "cpoy.cu does not exist"),
    "two dtypes of what is not compiled": ([('dtypes = ["f32"]', 'compiled = false\ndtypes = ["f32", "bf16", "i32"]'), ('cost = "THREADS"', 'dtypes = { x = ["f32", "i32"] }')],
                                           "variants.tiles[t64].dtypes.x is ['f32', 'i32'], expected one dtype, as the argument is not compiled"),
    "one cubin for the one dtype": ([('cost = "THREADS"', 'uncompiled = ["x"]')], "variants.tiles[t64].uncompiled is 'x', expected a compiled argument of several dtypes"),
    "one cubin for all of one dtype": ([('dtypes = ["f32"]', 'dtypes = ["f32", "bf16"]'), ('cost = "THREADS"', 'dtypes = { x = ["f32"] }\nuncompiled = ["x"]')],
                                       "expected a compiled argument of several dtypes, which 'dtypes' does not name: there is none"),
    "tile name twice": ([('name = "t128"', 'name = "t64"')], "two variants of sm_90a are named once_t64"),
    "same tile under two names": ([("{ THREADS = 128 }", "{ THREADS = 64 }")], "duplicate variants once_t64 and once_t128"),
    "map of six dimensions": (with_map(('["K", "M"]', '["K", "M", "1", "1", "1", "1"]')), "parameters.x_map.dims is ['K', 'M', '1', '1', '1', '1'], expected a list of 1 to 5 expressions"),
    "map of too few strides": (with_map(('["4 * x_stride"]', "[]")), "parameters[6].strides is [], expected 1 expression of a map of 2 dimensions"),
    "map of an unknown swizzle": (with_map((" }", ', swizzle = "256B" }')), "parameters.x_map.swizzle is '256B', expected one of none, 32B"),
    "map of an unknown fill": (with_map((" }", ', fill = "one" }')), "parameters.x_map.fill is 'one', expected one of zero, nan"),
    "map of a dtype of none": (with_map(('"f32"', '"e4m3"')), "parameters.x_map.dtype is 'e4m3', expected one of u8"),
    "box that no driver takes": (with_map(('"THREADS"', '"4 * THREADS"')), "the box has 512 elements, expected 1 to 256 (tile t128)"),
    "box wider than its swizzle": (with_map((" }", ', swizzle = "64B" }')), "128 bytes, more than the 64 of swizzle 64B"),
    "map of a symbol of none": (with_map(('"4 * x_stride"', '"4 * z_stride"')), "launch.default.parameters.x_map.strides[0]: '4 * z_stride' reads 'z_stride'"),
    "map of memory aligned too little": ([*with_map(), ("alignment = 16", "alignment = 8")],
                                         "launch.default.parameters.x_map: a tensor map of f32 needs addresses at multiples of 16 bytes, 'x' has alignment 8"),
    "map of packed codes aligned too little": (with_map(('"f32"', '"u4_align16"')),
                                               "a tensor map of u4_align16 needs addresses at multiples of 32 bytes, 'x' has alignment 16; write alignment = 32"),
}  # fmt: skip


def check(root):
    for table in read_tables(root):
        check_scope(table)
        expand(table)


def test_the_table_that_the_mistakes_are_made_in_is_right(tmp_path):
    check(write_tree(tmp_path))
    check(write_tree(tmp_path / "map", edited(TABLE, *with_map())))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_table_is_refused_for(tmp_path, mistake):
    changes, words = MISTAKES[mistake]
    root = write_tree(tmp_path, edited(TABLE, *changes))
    with pytest.raises(BuildError) as error:
        check(root)
    assert words in str(error.value)
    assert str(root / "quantize/tables/copy.toml") in str(error.value)


# what is broken -> the change, and the key that the refusal names
BROKEN = {
    "launch.default.grid[0]": ('"ceil_div(SIZE, THREADS)"', '"ceil_div(SIZE,"'),
    "launch.default.parameters.stride.i64": ('"y_stride if mode.once else K"', '"y_stride if mode.once"'),
    "arguments[x].shape[1]": ('shape = ["M", "K"]', 'shape = ["M", "K K"]'),
    "arguments[y].forms[1].shape[0]": ('["2", "M", "K"]', '["2 *", "M", "K"]'),
    "derived.SIZE": ('"M * K"', '"M ** K"'),
    "constraints[0].expression": ('"K % 4 == 0"', '"K % 4 = 0"'),
    "variants.tiles[t64].cost": ('cost = "THREADS"', 'cost = "(THREADS"'),
}  # fmt: skip


@pytest.mark.parametrize("key", BROKEN)
def test_a_broken_expression_is_named_by_its_key(tmp_path, key):
    root = write_tree(tmp_path, edited(TABLE, BROKEN[key]))
    with pytest.raises(BuildError) as error:
        check(root)
    assert f"copy.toml: {key}: '" in str(error.value) and "is not an expression" in str(error.value)


def test_what_is_no_expression_at_all_is_named_by_its_key(tmp_path):
    root = write_tree(tmp_path, edited(TABLE, ('"ceil_div(SIZE, THREADS)", "1"', '"ceil_div(SIZE, THREADS)", 1.5')))
    with pytest.raises(BuildError, match=r"launch.default.grid\[1\] is 1.5, expected an expression"):
        check(root)


def test_an_unknown_name_is_answered_with_the_nearest_and_symbols_first(tmp_path):
    root = write_tree(tmp_path, edited(TABLE, ('"ceil_div(SIZE, THREADS)"', '"ceil_div(SIZES, THREADS)"')))
    with pytest.raises(
        BuildError, match=r"launch.default.grid\[0\]: .*; did you mean 'SIZE'\? known here: K, M, SIZE, THREADS, count, .*, sms, bias.f32, "
    ):
        check(root)


def test_two_tables_of_one_kernel_are_refused(tmp_path):
    root = write_tree(tmp_path)
    (root / "quantize/tables/other.toml").write_text(TABLE)
    with pytest.raises(BuildError, match=r"quantize\.mxfp8\.rows is already the kernel of"):
        read_tables(root)


def test_a_tree_without_tables_is_refused(tmp_path):
    with pytest.raises(BuildError, match="no table matches"):
        read_tables(tmp_path)


def test_an_absent_optional_argument_still_leaves_its_symbols(tmp_path):
    """What only absent arguments bind is 0 for every reader, so an expression may read it."""
    table = edited(TABLE, ('shape = ["K"]', 'shape = ["B"]'), *with_value('count = "count + B"'))
    check(write_tree(tmp_path, table, SOURCE))
