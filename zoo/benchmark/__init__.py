"""How long a kernel takes, beside a copy of the same bytes in the same run."""
