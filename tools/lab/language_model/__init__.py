"""A small mixture-of-experts language model, trained in bf16 by torch's layers and in FP8 by zoo's: do the losses differ?"""
