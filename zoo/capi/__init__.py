"""The C library's sources, and the writer of its tables. `zoo.export.export` puts them together."""
