"""What the plugins of vLLM and SGLang do with a layer, on a GPU: load cubins, pack weights, and be captured at sizes that never ran before."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tests.clients.weights import error, quantised  # noqa: E402
from zoo.torch.nn import Experts  # noqa: E402
from zoo.torch.nn.formats import format_of, on_gpu  # noqa: E402
from zoo.torch.nn.products import product  # noqa: E402
from zoo.torch.quantized import Quantized  # noqa: E402
from zoo.torch.serving import format_for, load, squares  # noqa: E402

pytestmark = pytest.mark.gpu

CHECKPOINTS = [("fp8b128", True), ("mxfp8", True), ("nvfp4", True), ("nvfp4", False), ("mxfp4", True), ("mxfp4", False)]
BOUNDS = {"fp8b128": 0.04, "mxfp8": 0.05, "fp8_nvfp4": 0.04, "fp8_mxfp4": 0.04}
BOUNDS |= {"bf16_nvfp4": 0.005, "bf16_mxfp4": 0.005, "nvfp4": 0.13, "mxfp4": 0.17}


@pytest.fixture(params=CHECKPOINTS, ids=lambda one: f"{one[0]}-{'quantised' if one[1] else 'bf16'}-tokens")
def checkpoint(request):
    """Weights, and the format that serves them."""
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    weights, tokens = request.param
    format = format_for(weights, tokens, on_gpu(torch.cuda.get_device_capability()))
    if format is None:
        pytest.skip("this GPU has no product for it, and clients keep their own")
    load(format, torch.cuda.current_device())
    return weights, format


def plain(tensors, weights):
    on = {name: one.cuda() for name, one in tensors.items()}
    if weights == "fp8b128":
        return squares(on["weight"], on["weight_scale_inv"])
    if weights in ("mxfp4", "mxfp8"):
        return Quantized(on["weight"], on["weight_scale"].view(torch.float8_e8m0fnu), weights)
    return Quantized(on["weight"], on["weight_scale"], "nvfp4", tensor_scale=on["weight_scale_2"].reshape(1))


def captured(run, *given):
    """The result of a CUDA graph whose capture is the first run at this size. Torch's own kernels have run, at another size."""
    with torch.no_grad():
        run(*(one.repeat(3, 1) for one in given))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(*given)
    graph.replay()
    torch.cuda.synchronize()
    return y.cpu()


@pytest.mark.parametrize("tokens", [1, 17, 100, 300])
def test_a_linear_layer_is_captured_at_a_size_that_never_ran(checkpoint, tokens):
    weights, format = checkpoint
    torch.manual_seed(0)
    tensors, numbers = quantised(torch.randn(384, 512) / 16, weights)
    weight = format_of(format).readable(plain(tensors, weights))
    x, bias = torch.randn(tokens, 512, dtype=torch.bfloat16), torch.randn(384, dtype=torch.bfloat16)
    bias_there = bias.cuda()
    y = captured(lambda x: product(x, weight, format, bias=bias_there), x.cuda())
    assert error(y, x.float() @ numbers.t() + bias.float()) < BOUNDS[format]


@pytest.mark.parametrize("tokens", [1, 40])
def test_the_experts_of_a_rank_are_captured_and_skip_ids_of_others(checkpoint, tokens):
    weights, format = checkpoint
    torch.manual_seed(1)
    here, first, hidden, intermediate = 4, 4, 512, 256
    made = [
        [quantised(torch.randn(shape) / 16, weights) for shape in ((2 * intermediate, hidden), (hidden, intermediate))] for _ in range(here)
    ]
    matrices = []
    for which in (0, 1):
        each = [plain(expert[which][0], weights) for expert in made]
        number = torch.cat([one.tensor_scale for one in each]) if weights == "nvfp4" else None
        elements, scales = (torch.stack([getattr(one, part).view(torch.uint8) for one in each]) for part in ("elements", "scales"))
        dtypes = each[0].elements.dtype, each[0].scales.dtype
        if weights == "fp8b128":
            scales = torch.stack([one.scales for one in each])
        matrices.append(Quantized(elements.view(dtypes[0]), scales.view(dtypes[1]), weights, weights == "fp8b128", tensor_scale=number))
    layer = Experts.from_quantized(*matrices, format, first=first, total=12)
    x, shares = torch.randn(tokens, hidden, dtype=torch.bfloat16), torch.rand(tokens, 3)
    ids = torch.randint(-1, 12, (tokens, 3), dtype=torch.int32)
    ids[0] = torch.tensor([5, -1, 11])
    y = captured(layer, x.cuda(), ids.cuda(), shares.cuda())
    exact = torch.zeros(tokens, hidden)
    for t in range(tokens):
        for j in range(3):
            expert = int(ids[t, j]) - first
            if 0 <= expert < here:
                gate, up = (made[expert][0][1] @ x[t].float()).chunk(2)
                exact[t] += shares[t, j] * (made[expert][1][1] @ (torch.nn.functional.silu(gate) * up))
    assert error(y, exact) < 2 * BOUNDS[format]
