"""Modules with another library's names. On the CPU zoo's operators compute the written rule, so no test here needs a GPU."""
