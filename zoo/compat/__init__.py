"""Modules with another library's names on zoo's kernels. Each is switched on by a call or a command, never by importing zoo."""
