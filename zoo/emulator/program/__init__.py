"""`zoo emulate PROGRAM`: a CUDA host program over a stand-in for the CUDA runtime and driver.

The program is a child process. A library made of the C files here is preloaded into it; it has the names of libcudart and libcuda, so the loader
looks for no others. Each process of the program that calls CUDA connects to a socket in a folder of the user's alone and has an emulated
device of its own. Nothing stays when the program has ended.
"""

from .start import start

__all__ = ["start"]
