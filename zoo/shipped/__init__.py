"""Cubins as files: the packaged ones, their integrity, their PTX, and what has been seen of them."""
