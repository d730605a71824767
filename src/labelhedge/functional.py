"""Every loss as a function, as ``torch.nn.functional`` is to ``torch.nn``."""

# written by docs/generate.py
from labelhedge.losses.aldr import aldr_kl, aldr_lambda
from labelhedge.losses.bounded import agce, aul, js, rll
from labelhedge.losses.ldr import ldr_kl
from labelhedge.losses.ldr_family import ldr, ldr_k_kl, ldr_quadratic, ldr_weights, topk_svm
from labelhedge.losses.linear import linear_aldr_kl, linear_ce, linear_ldr_kl
from labelhedge.losses.margin import cs, ww
from labelhedge.losses.normalized import nce, nce_agce, nce_aul, nce_rce
from labelhedge.losses.probability import ce, gce, mae, mse, rce, sce
from labelhedge.losses.truncated import tgce

__all__ = [
    "agce",
    "aldr_kl",
    "aldr_lambda",
    "aul",
    "ce",
    "cs",
    "gce",
    "js",
    "ldr",
    "ldr_k_kl",
    "ldr_kl",
    "ldr_quadratic",
    "ldr_weights",
    "linear_aldr_kl",
    "linear_ce",
    "linear_ldr_kl",
    "mae",
    "mse",
    "nce",
    "nce_agce",
    "nce_aul",
    "nce_rce",
    "rce",
    "rll",
    "sce",
    "tgce",
    "topk_svm",
    "ww",
]
