"""Fused kernels in Triton for the formulas of the losses."""
