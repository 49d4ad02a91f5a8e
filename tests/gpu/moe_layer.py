"""A mixture-of-experts layer in FP8, forward and backward: zoo quantises and multiplies, torch does the rest."""

import torch

import zoo

launch, FP8, F32, BF16 = zoo.launch, torch.float8_e4m3fn, torch.float32, torch.bfloat16


def rows(kernel, x, M, K, **arguments):  # (M, K) in e4m3, one scale for 1 x 128
    q, scales = x.new_empty(M, K, dtype=FP8), x.new_empty(M, -(-K // 128), dtype=F32)
    launch(f"quantize.fp8b128.rows.{kernel}", x=x, q=q, scales=scales, **arguments)
    return q, scales


def columns(x, offsets):  # x transposed, one scale for 128 x 1; each group is padded with zeros to a multiple of 128
    length, G = len(x) + 128 * len(offsets), len(offsets)
    q = x.new_empty(x.shape[1], -(-length // 16) * 16, dtype=FP8)[:, :length]
    scales, bounds = x.new_empty(-(-length // 128) + G, x.shape[1], dtype=F32).t(), offsets.new_empty(2, G)
    padded = {"scales": scales[:, :-G], "padded_starts": bounds[0], "padded_ends": bounds[1]}
    launch("quantize.fp8b128.cols.m_grouped_padded", x=x, offsets=offsets, q=q, layout="mn_major", **padded)
    return q, scales, bounds[1]


def squares(w):  # all experts' weights (E, N, K), and the same numbers transposed; one scale for 128 x 128
    (E, N, K), n, k = w.shape, -(-w.shape[1] // 128), -(-w.shape[2] // 128)
    q, q_cols = w.new_empty(E, N, K, dtype=FP8), w.new_empty(E, K, N, dtype=FP8)
    scales, scales_cols = w.new_empty(E, n, k, dtype=F32), w.new_empty(E, k, n, dtype=F32)
    launch("quantize.fp8b128.squares", x=w, q=q, scales=scales, q_cols=q_cols, scales_cols=scales_cols)
    return (q, scales), (q_cols, scales_cols)


def by_rows(a, b, offsets):  # the rows of each group times its own matrix
    d = a[0].new_empty(len(a[0]), b[0].shape[1], dtype=BF16)
    launch("gemm.fp8b128.m_grouped_contiguous", a=a[0], a_scale=a[1], b=b[0], b_scale=b[1], offsets=offsets, d=d)
    return d


def by_columns(a, b):  # a matrix for each group: the sum over its rows
    d = a[0].new_empty(len(a[2]), len(a[0]), len(b[0]), dtype=F32)
    launch("gemm.fp8b128.k_grouped", a=a[0], a_scale=a[1], b=b[0], b_scale=b[1], offsets=a[2], d=d)
    return d


class Experts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shares, order, offsets, w_in, w_out):  # w_in (E, 2 F, K): gates, then ups; w_out (E, K, F)
        (T, top_k), (_, K, F) = shares.shape, w_out.shape
        token, place = (order // top_k).int(), order.argsort()  # whose each row is; where each token's rows are
        (w_in_q, ctx.w_in_t), (w_out_q, ctx.w_out_t) = squares(w_in), squares(w_out)
        h = by_rows(rows("m_grouped_contiguous", x, T * top_k, K, index=token, offsets=offsets), w_in_q, offsets)
        y = by_rows(rows("swiglu", h.unflatten(1, (2, -1)), T * top_k, F), w_out_q, offsets)[place].view(T, top_k, K)
        ctx.save_for_backward(x, shares, order, offsets, token, place, h, y)
        return (y * shares[..., None]).sum(1).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        x, shares, order, offsets, token, place, h, y = ctx.saved_tensors
        d_rows = (dy[token] * shares.flatten()[order][:, None]).to(BF16)
        d_act = by_rows(rows("m_grouped_contiguous", d_rows, *d_rows.shape, offsets=offsets), ctx.w_out_t, offsets)
        with torch.enable_grad():
            gate, up = h.requires_grad_().float().chunk(2, dim=1)
            act = (torch.nn.functional.silu(gate) * up).to(BF16)
        (dh,) = torch.autograd.grad(act, h, d_act)
        d_x = by_rows(rows("m_grouped_contiguous", dh, *dh.shape, offsets=offsets), ctx.w_in_t, offsets)
        dw_in = by_columns(columns(dh, offsets), columns(x[token], offsets))
        dw_out = by_columns(columns(d_rows, offsets), columns(act.detach(), offsets))
        return d_x[place].view(*y.shape).sum(1), (y * dy[:, None]).sum(2), None, None, dw_in, dw_out


def moe(x, router, w_in, w_out, top_k):
    shares, experts = torch.softmax(x.float() @ router.t(), dim=1).topk(top_k)
    groups, order = experts.flatten().sort(stable=True)
    offsets = torch.searchsorted(groups, torch.arange(len(w_in), device=x.device), right=True, out_int32=True)
    return Experts.apply(x, shares / shares.sum(1, keepdim=True), order, offsets, w_in, w_out)
