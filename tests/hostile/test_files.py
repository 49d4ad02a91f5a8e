"""Reading a file that may be anything, and may change while it is read."""

import os

import pytest

from zoo.contract import files
from zoo.contract.files import read_file, write_file


def test_a_file_is_read_to_its_last_byte_and_no_longer_one(tmp_path):
    path = tmp_path / "file"
    for size in (0, 1, 4095, 4096, 70_000):
        path.write_bytes(os.urandom(size))
        assert read_file(path, size) == read_file(path, size + 1) == path.read_bytes()
        if size:
            with pytest.raises(OSError, match="more than the"):
                read_file(path, size - 1)


def test_a_file_that_says_it_is_empty_and_is_not_is_read_to_the_limit():
    assert read_file("/proc/self/status", 1 << 20).startswith(b"Name:")
    with pytest.raises(OSError, match="more than the 10 bytes"):
        read_file("/proc/self/status", 10)


def test_a_file_that_grows_under_the_reader_is_read_to_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100)
    real = os.fstat

    def grow(descriptor):
        found = real(descriptor)
        path.write_bytes(b"a" * 1000)
        return found

    monkeypatch.setattr(files.os, "fstat", grow)
    assert read_file(path, 1000) == b"a" * 1000
    path.write_bytes(b"a" * 100)
    with pytest.raises(OSError, match="more than the 999 bytes"):
        read_file(path, 999)


def test_a_folder_and_a_link_to_nothing_are_told_apart(tmp_path):
    with pytest.raises(OSError, match="no regular file"):
        read_file(tmp_path, 10)
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "link", 10)


def test_a_file_is_written_over_what_was_there_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "file"
    for data in (b"first and longer", b"second"):
        write_file(path, data)
        assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]
