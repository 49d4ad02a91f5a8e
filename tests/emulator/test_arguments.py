"""The file of a launch's arguments: each mistake is refused by the number of its table, and contents are what was asked for."""

import ml_dtypes
import numpy as np
import pytest

from zoo.emulator.arguments import MOST_BYTES, SpecError, read


def spec(folder, text):
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def one(folder, table):
    return read(spec(folder, f"args = [{{{table}}}]"))[0][0]


REFUSED = {
    'dtype = "f32", shape = [4], value = 1': "'shape' is unknown; it is one of dtype, name, value",
    'dtype = "f23", shape = [4]': "dtype = 'f23' is unknown; did you mean f32?",
    "shape = [4]": "dtype = None is unknown; it is one of u8,",
    'dtype = "f32"': "shape = None is no list of sizes",
    'dtype = "f32", shape = [-1]': "shape = [-1] is no list of sizes",
    'dtype = "f32", shape = [true]': "shape = [True] is no list of sizes",
    'dtype = "f32", shape = [1000000000000, 1000000000000]': f"the arrays have more than {MOST_BYTES:,} bytes together",
    'dtype = "f32", shape = [4], fil = "ones"': "'fil' is unknown; did you mean fill?",
    'dtype = "f32", shape = [4], fill = "one"': "fill = 'one' is unknown",
    'dtype = "f32", shape = [4], fill = [1]': "fill = [1] is unknown",
    'dtype = "f32", shape = [4], fill = "random", seed = -1': "seed = -1 is no whole number",
    'dtype = "f32", shape = [4], fill = "none.npy"': "'none.npy': ",
    'dtype = "f32", shape = [4], fill = "bad.npy"': "'bad.npy': ",
    'dtype = "f32", shape = [4], fill = "three.npy"': "'three.npy' has the shape (3,), expected (4,)",
    'dtype = "f32", shape = [3], fill = "objects.npy"': "'objects.npy': ",
    'dtype = "f32", shape = [3], fill = "texts.npy"': "'texts.npy' has dtype <U1",
    'dtype = "f32", shape = [3], fill = "halves.npy"': "'halves.npy' has elements of 2 bytes, float32 has 4",
    'dtype = "f32", shape = [4], expected = 1': "1 is no file .npy",
    'dtype = "f32", shape = [4], rtol = -1': "rtol = -1 is no tolerance",
    'dtype = "f32", shape = [4], rtol = nan': "rtol = nan is no tolerance",
    'dtype = "f32", shape = [4], rtol = true': "rtol = True is no tolerance",
    'dtype = "f32", shape = [4], show = "no"': "show = 'no' is neither true nor false",
    'dtype = "f32", shape = [4], tensor_map = {box = [4, 4]}': "box = [4, 4] is no list of 1 sizes",
    'dtype = "f32", shape = [4], tensor_map = {boxes = [4]}': "has a box, and optionally a swizzle",
    'dtype = "f32", shape = [4], texture = {filters = "point"}': "expected a table with keys among address, border, channels, filter",
    'dtype = "f32", shape = [4], texture = {filter = "cubic"}': "the filter 'cubic' is unknown; it is one of point, linear",
    'dtype = "f32", shape = [4], texture = {border = 1}': "has no len",
    'dtype = "f64", shape = [4], texture = {}': "the dtype 'float64' is unknown; it is one of u8,",
    'dtype = "f32", shape = [4, 3], texture = {channels = 4}': "the last size of shape = [4, 3] must be the number of channels, 4",
    'dtype = "f32", shape = [4, 4], texture = {geometry = "3d"}': "are no 3 positive sizes",
    'dtype = "f32", shape = [4], surface = {filter = "point"}': "expected a table with keys among channels, geometry",
    'dtype = "f32", shape = [4], surface = {}, texture = {}': "texture and surface exclude each other",
    'dtype = "f32", shape = [4], multicast = 1': "multicast = 1 is neither true nor false",
    'name = "../x", value = 1': "the name '../x' is not of letters",
    'value = "1"': "value = '1' is no number",
    'value = 1, dtype = "i32"': "the dtype of a scalar is the parameter's",
    "fields = 1": "fields = 1 is no list of tables",
    "fields = [{value = 1}]": "fields[0]: offset = None is no place in a struct",
    "fields = [{offset = 0, value = 1}]": "fields[0]: dtype = None is unknown",
    "fields = [{offset = 0, fields = []}]": "fields[0]: 'fields' is unknown",
    'fields = [{offset = 0, value = 1, dtype = "i32"}], shape = [1]': "'shape' is unknown",
}  # fmt: skip


@pytest.mark.parametrize("table", REFUSED)
def test_a_mistake_is_refused_by_the_table_it_is_in(tmp_path, table):
    np.save(tmp_path / "three.npy", np.zeros(3, np.float32))
    np.save(tmp_path / "objects.npy", np.array([{}, 1, 2], object), allow_pickle=True)
    np.save(tmp_path / "texts.npy", np.array(["a", "b", "c"]))
    np.save(tmp_path / "halves.npy", np.zeros(3, ml_dtypes.bfloat16))
    (tmp_path / "bad.npy").write_bytes(b"no array")
    with pytest.raises(SpecError) as refusal:
        read(spec(tmp_path, f"args = [{{value = 1}}, {{{table}}}]"))
    assert "spec.toml: args[1]: " in str(refusal.value) and REFUSED[table] in str(refusal.value)


@pytest.mark.parametrize("text", ["", "args = 1", "args = [1]", "args = {a = 1}", "[args", "\0", "args = [{value = 1, value = 2}]"])
def test_a_file_without_tables_is_refused(tmp_path, text):
    with pytest.raises(SpecError, match=r"spec\.toml: "):
        read(spec(tmp_path, text))


def test_two_arguments_of_one_name_are_refused(tmp_path):
    with pytest.raises(SpecError, match="two arguments are named x"):
        read(spec(tmp_path, 'args = [{name = "x", value = 1}, {name = "x", value = 2}]'))


def test_deep_nesting_is_refused(tmp_path):
    with pytest.raises(SpecError):
        read(spec(tmp_path, "args = " + "[" * 100_000))


def test_arrays_are_bounded_together(tmp_path):
    with pytest.raises(SpecError, match=r"args\[2\]: .* bytes together"):
        read(spec(tmp_path, "args = [" + '{dtype = "u8", shape = [500000000], fill = "empty"},' * 3 + "]"))


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ('dtype = "f32", shape = [2, 2], fill = "arange"', [[0, 1], [2, 3]]),
        ('dtype = "e4m3", shape = [2], fill = "ones"', [1, 1]),
        ('dtype = "u8", shape = [2], fill = -1', [255, 255]),
        ('dtype = "bf16", shape = [2], fill = 0.1', [0.10009765625] * 2),
        ('dtype = "bf16", shape = [2], fill = "small.npy"', [0.5, -2]),
        ('dtype = "bf16", shape = [2], fill = "wide.npy"', [0.5, -2]),
        ('dtype = "i64", shape = []', 0),
    ],
)
def test_contents_are_what_was_asked_for(tmp_path, table, values):
    np.save(tmp_path / "small.npy", np.array([0.5, -2], ml_dtypes.bfloat16))
    np.save(tmp_path / "wide.npy", np.array([0.5, -2]))
    found = one(tmp_path, table)
    assert found.written and found.array.astype(np.float64).tolist() == values


def test_random_contents_follow_the_seed_and_differ_between_arguments(tmp_path):
    tables = ", ".join(['{dtype = "f32", shape = [8], fill = "random"}'] * 2 + ['{dtype = "f32", shape = [8], fill = "random", seed = 0}'])
    first, second, third = (argument.array.tolist() for argument in read(spec(tmp_path, f"args = [{tables}]"))[0])
    assert first == third != second


def test_empty_contents_count_as_never_written(tmp_path):
    assert not one(tmp_path, 'dtype = "f32", shape = [2], fill = "empty"').written


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"no archive"])
def test_a_bad_npz_is_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(SpecError, match=r"a\.npz: "):
        read(tmp_path / "a.npz")


def test_an_npz_with_a_nameless_dtype_or_a_hostile_name_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(2, ml_dtypes.bfloat16))
    with pytest.raises(SpecError, match="name its dtype in a TOML file"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", **{"../x": np.zeros(2)})
    with pytest.raises(SpecError, match=r"'\.\./x' is not of letters"):
        read(tmp_path / "b.npz")


def test_a_text_is_a_value_for_triton_only(tmp_path):
    path = spec(tmp_path, 'args = [{name = "type", value = "tl.float16"}]')
    assert read(path, texts=True)[0][0].value == "tl.float16"
    with pytest.raises(SpecError, match=r"value = 'tl\.float16' is no number"):
        read(path)
