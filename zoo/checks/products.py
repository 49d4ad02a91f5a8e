"""Products of the reference, which variants of a kernel, and problems that differ in what follows the product, share."""

from __future__ import annotations

from zoo.checks.remembered import remembered
from zoo.reference import block_scaled_gemm, gemm, gemm_powers_of_two

gemm_block_scaled = remembered(megabytes=64)(block_scaled_gemm.gemm_block_scaled)
exact_block_scaled = remembered(megabytes=64)(block_scaled_gemm.exact)
gemm_fp8b128 = remembered(megabytes=64)(gemm.gemm_fp8b128)
gemm_fp8b128_k_grouped = remembered(megabytes=64)(gemm.gemm_fp8b128_k_grouped)
gemm_fp8b128_of_powers = remembered(megabytes=64)(gemm_powers_of_two.gemm_fp8b128_of_powers)
gemm_fp8b128_k_grouped_of_powers = remembered(megabytes=64)(gemm_powers_of_two.gemm_fp8b128_k_grouped_of_powers)
