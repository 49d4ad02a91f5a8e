"""zoo.torch.nn: layers on the CPU, by the kernels' written rule."""
