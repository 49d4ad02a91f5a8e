"""The C library's sources, and the writer of its tables. `zoo.capi.export.export` puts them together."""
