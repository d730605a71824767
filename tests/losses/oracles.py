"""The truth that the loss library is tested against: every loss, for one sample, at 60 digits or more.

Independent on purpose: nothing here imports or imitates the library. Each value is written as the definition
prints it, in mpmath, with no thought for speed or gradients. A maximum is searched for (ALDR-KL: a grid over
lambda, then golden section at each peak) or found by bisection on the one multiplier of its KKT conditions
(LDR-k-KL, LDR-quadratic), and `convex_solver_ldr` checks the latter with a general-purpose solver.
"""

import inspect
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from mpmath import mp, mpf

DIGITS = 60
LOG_1E_4 = math.log(1e-4)
Vector = list[mpf]


def softmax(z: Vector) -> Vector:
    exps = [mp.exp(x) for x in z]
    total = mp.fsum(exps)
    return [e / total for e in exps]


def shifted(z: Vector, y: int, margin: mpf | Vector) -> Vector:
    """q_k = f_k - f_y + c_y [k != y]."""
    c = margin[y] if isinstance(margin, list) else margin
    return [x - z[y] + (c if k != y else 0) for k, x in enumerate(z)]


def hinges(z: Vector, y: int, margin: mpf | Vector) -> Vector:
    """max(0, q_k), which is 0 at k = y."""
    return [max(mpf(0), q) for q in shifted(z, y, margin)]


def power_gap(high: mpf, low: mpf, q: mpf) -> mpf:
    """(high^q - low^q) / q, and its limit at q = 0."""
    return (high**q - low**q) / q if q else mp.log(high / low)


def kl(a: Vector, b: Vector) -> mpf:
    return mp.fsum(x * mp.log(x / w) for x, w in zip(a, b, strict=True) if x > 0)


def js(p: Vector, y: int, pi1: mpf = 0.5) -> mpf:
    e = [mpf(k == y) for k in range(len(p))]
    m = [pi1 * e_k + (1 - pi1) * p_k for e_k, p_k in zip(e, p, strict=True)]
    return (pi1 * kl(e, m) + (1 - pi1) * kl(p, m)) / (-(1 - pi1) * mp.log(1 - pi1))


def nce(p: Vector, y: int) -> mpf:
    return mp.log(p[y]) / mp.fsum(mp.log(x) for x in p)


def agce(p: Vector, y: int, a: mpf = 3.0, q: mpf = 1.5) -> mpf:
    return power_gap(a + 1, a + p[y], q)


def aul(p: Vector, y: int, a: mpf = 6.0, q: mpf = 1.5) -> mpf:
    return power_gap(a - p[y], a - 1, q)


def rll(p: Vector, y: int, alpha: mpf = 1.0) -> mpf:
    others = mp.fsum(mp.log(alpha + x) for k, x in enumerate(p) if k != y)
    return -mp.log(alpha + p[y]) + others / (len(p) - 1)


def smooth_max(q: Vector, lam: mpf) -> mpf:
    """lam log((1/K) sum exp(q / lam)), from the maximum (lam = 0) to the mean (lam = inf)."""
    if lam == 0:
        return max(q)
    if mp.isinf(lam):
        return mp.fsum(q) / len(q)
    return lam * mp.log(mp.fsum(n * mp.exp(x / lam) for x, n in Counter(q).items()) / len(q))


def aldr(z: Vector, y: int, lambda0: mpf, alpha: mpf | None, margin: mpf | Vector) -> tuple[mpf, mpf]:
    """Value and place of the maximum over lam >= 0 of smooth_max(q, lam) - (alpha/2) (lam - lambda0)^2.

    Both terms fall beyond lambda0, so the search is over [0, lambda0]: a float grid, then its peaks.
    """
    q = shifted(z, y, margin)
    if lambda0 == 0 or mp.isinf(lambda0):  # the limits, where alpha = 2 log K / lambda0 is infinite or zero
        return smooth_max(q, lambda0), lambda0
    alpha = 2 * mp.log(len(q)) / lambda0 if alpha is None else alpha

    def objective(lam: mpf) -> mpf:
        return smooth_max(q, lam) - alpha / 2 * (lam - lambda0) ** 2

    grid = float(lambda0) * np.linspace(0, 1, 4001) ** 2  # finer towards 0, where the objective bends most
    gaps, coarse = np.array(q, dtype=float) - float(max(q)), np.zeros(len(grid))
    coarse[1:] = grid[1:] * np.log(np.exp(gaps / grid[1:, None]).mean(1))
    coarse += float(alpha) * grid * (float(lambda0) - grid / 2)  # the objective, less its value at 0
    padded = np.concatenate([[-np.inf], coarse, [-np.inf]])
    peaks = np.flatnonzero((coarse > padded[:-2]) & (coarse >= padded[2:])).tolist()
    brackets = [(mpf(grid[max(i - 1, 0)]), mpf(grid[min(i + 1, len(grid) - 1)])) for i in peaks]
    candidates = [lam for low, high in brackets for lam in (low, golden_section(objective, low, high), high)]
    return max((objective(lam), lam) for lam in candidates)


def golden_section(f: Callable[[mpf], mpf], low: mpf, high: mpf) -> mpf:
    for _ in range(75):
        step = (high - low) * (mp.sqrt(5) - 1) / 2
        low, high = (low, low + step) if f(high - step) > f(low + step) else (high - step, high)
    return (low + high) / 2


def kl_ldr(q: Vector, lam: mpf, k: mpf) -> mpf:
    """max p.q - lam sum p log(K p) over Omega(k): p_i = min(1/k, exp(q_i/lam - 1 - beta)/K), beta >= 0."""
    if lam == 0:
        return linear_ldr(q, k)
    if mp.isinf(lam):
        return mp.inf  # sum p log(K p) is -1/e at p = 1/(eK), which Omega(k) holds
    free = [mp.exp(x / lam - 1) / len(q) for x in q]

    def p_at(beta: mpf) -> Vector:
        cap, shrink = 1 / k, mp.exp(-beta)
        return [min(cap, x * shrink) for x in free]

    p = feasible(p_at, mpf(0), max(q) / lam - 1)
    return mp.fsum(p_i * (q_i - lam * mp.log(len(q) * p_i)) for p_i, q_i in zip(p, q, strict=True))


def quadratic_ldr(q: Vector, lam: mpf, k: mpf | None) -> mpf:
    """max p.q - lam ||p - 1/K||^2 over the simplex (k None) or Omega(k).

    p_i = clip(1/K + (q_i - tau) / (2 lam), 0, cap), with tau free on the simplex and tau >= 0 on Omega(k).
    """
    if lam == 0:
        return linear_ldr(q, k)
    if mp.isinf(lam):
        return mp.fsum(q) / len(q)
    uniform = mpf(1) / len(q)
    cap, low = (mpf(1), min(q)) if k is None else (1 / k, mpf(0))
    p = feasible(lambda tau: [min(cap, max(mpf(0), uniform + (x - tau) / (2 * lam))) for x in q], low, max(q))
    return mp.fsum(p_i * q_i - lam * (p_i - uniform) ** 2 for p_i, q_i in zip(p, q, strict=True))


def feasible(p_at: Callable[[mpf], Vector], low: mpf, high: mpf) -> Vector:
    """p at the smallest multiplier >= low where its sum, which falls, is at most 1 (as it is at `high`)."""
    if mp.fsum(p_at(low)) <= 1:
        return p_at(low)
    for _ in range(250):
        middle = (low + high) / 2
        low, high = (middle, high) if mp.fsum(p_at(middle)) > 1 else (low, middle)
    return p_at(high)


def linear_ldr(q: Vector, k: mpf | None) -> mpf:
    """max p.q as its dual, min over tau of tau + cap sum max(0, q - tau): piecewise linear, so at a kink."""
    cap, kinks = (mpf(1), q) if k is None else (1 / k, [mpf(0), *(x for x in q if x > 0)])
    return min(tau + cap * mp.fsum(max(mpf(0), x - tau) for x in q) for tau in kinks)


def ldr(
    z: Vector, y: int, regularizer: str = "kl", constraint: str = "simplex", k: mpf = 1, lam: mpf = 1, margin: mpf = 0
) -> mpf:
    q, k = shifted(z, y, margin), None if constraint == "simplex" else k
    if regularizer == "quadratic":
        return quadratic_ldr(q, lam, k)
    return smooth_max(q, lam) if k is None else kl_ldr(q, lam, k)


def exact(value: Any) -> Any:
    """The mpf of the same value, one by one in a sequence; None and names stay."""
    if value is None or isinstance(value, str):
        return value
    return [mpf(float(v)) for v in value] if np.ndim(value) else mpf(float(value))


def normalized(f: Vector, normalize: str | None) -> Vector:
    """f / (||f||_1 / K), after softplus if asked; all-zero logits stay zero."""
    if normalize not in (None, "l1", "softplus"):
        raise ValueError(f"unknown normalize {normalize!r}")
    if normalize == "softplus":
        f = [mp.log1p(mp.exp(x)) for x in f]
    scale = mp.fsum(abs(x) for x in f) / len(f) if normalize else mpf(1)
    return [x / scale for x in f] if scale else f


def oracle(loss: Callable[..., mpf], default_normalize: str | None = None) -> Callable[..., float]:
    """`loss` of exact numbers as a function of raw logits; it takes them as `z`, or their softmax as `p`."""
    signature = inspect.signature(loss)

    def evaluate(
        logits: Sequence[float],
        y: int,
        normalize: str | None = default_normalize,
        temperature: float = 1.0,
        **params: Any,
    ) -> float:
        with mp.workdps(DIGITS):
            z = [x / exact(temperature) for x in normalized(exact(logits), normalize)]
            # 1 - p_y can be as small as exp(-spread), and MSE as its square: carry those digits as well.
            extra = int(min(400, 0.87 * (max(z) - min(z))))
        with mp.workdps(DIGITS + extra):
            call = signature.bind(softmax(z) if "p" in signature.parameters else z, y, **params)
            call.apply_defaults()
            first, label, *rest = call.args
            return float(loss(first, label, *map(exact, rest)))

    return evaluate


_LOSSES: dict[str, Callable[..., mpf]] = {
    "ce": lambda p, y: -mp.log(p[y]),
    "cs": lambda z, y, margin=1.0: max(hinges(z, y, margin)),
    "ww": lambda z, y, margin=1.0: mp.fsum(hinges(z, y, margin)),
    "mae": lambda p, y: 2 * (1 - p[y]),
    "mse": lambda p, y: 1 - 2 * p[y] + mp.fsum(x**2 for x in p),
    "gce": lambda p, y, q=0.7: power_gap(mpf(1), p[y], q),
    "tgce": lambda p, y, q=0.7, k=0.5: power_gap(mpf(1), max(p[y], k), q),
    "sce": lambda p, y, alpha=0.5, A=-4.0: -alpha * mp.log(p[y]) + (1 - alpha) * -A * (1 - p[y]),
    "js": js,
    "nce": nce,
    "rce": lambda p, y, A=LOG_1E_4: -A * (1 - p[y]),
    "rll": rll,
    "agce": agce,
    "aul": aul,
    "nce+rce": lambda p, y, alpha=5.0, beta=5.0, A=LOG_1E_4: alpha * nce(p, y) + beta * -A * (1 - p[y]),
    "nce+agce": lambda p, y, alpha=5.0, beta=5.0, a=3.0, q=1.5: alpha * nce(p, y) + beta * agce(p, y, a, q),
    "nce+aul": lambda p, y, alpha=5.0, beta=5.0, a=6.0, q=1.5: alpha * nce(p, y) + beta * aul(p, y, a, q),
    "ldr-kl": lambda z, y, lam=1.0, margin=0.1: smooth_max(shifted(z, y, margin), lam),
    "aldr-kl": lambda z, y, lambda0=1.0, alpha=None, margin=0.1: aldr(z, y, lambda0, alpha, margin)[0],
    "ldr": ldr,
    "ldr-k-kl": lambda z, y, lam=1.0, k=2, margin=0.1: kl_ldr(shifted(z, y, margin), lam, k),
    "topk-svm": lambda z, y, k=2, margin=1.0: mp.fsum(sorted(hinges(z, y, margin))[-int(k) :]) / k,
    "ldr-quadratic": lambda z, y, lam=1.0, k=None, margin=0.1: quadratic_ldr(shifted(z, y, margin), lam, k),
}
_ON_L1 = ("ldr-kl", "aldr-kl")
"""Those that normalise the logits unless told otherwise."""
ORACLES: dict[str, Callable[..., float]] = {
    name: oracle(loss, "l1" if name in _ON_L1 else None) for name, loss in _LOSSES.items()
}


def aldr_lambda(logits: Sequence[float], y: int, **params: Any) -> float:
    """The lambda at which ORACLES["aldr-kl"], given the same parameters, attains its maximum."""

    def place(z: Vector, y: int, lambda0=1.0, alpha=None, margin=0.1) -> mpf:
        return aldr(z, y, lambda0, alpha, margin)[1]

    return oracle(place, "l1")(logits, y, **params)


def convex_solver_ldr(
    q: np.ndarray, regularizer: Literal["kl", "quadratic"], k: int | None, lam: float
) -> tuple[float, np.ndarray]:
    """Value and maximiser of p.q - lam R(p) over the simplex (k None) or Omega(k), by interior points.

    The exponential cone at times stops the solver 1e-9 short, on other problems if p is in other units. So
    two are tried, each answer is made feasible, and the larger value is the nearer to the maximum.
    """
    import cvxpy as cp
    from scipy.special import xlogy

    K, answers = len(q), []
    for unit in (K, 10 * K):
        x = cp.Variable(K, nonneg=True)  # unit * p
        domain = [cp.sum(x) == unit] if k is None else [cp.sum(x) <= unit, x <= unit / k]
        quadratic = regularizer == "quadratic"
        r = cp.sum_squares(x / unit - 1 / K) if quadratic else cp.sum(cp.rel_entr(x, unit / K)) / unit
        problem = cp.Problem(cp.Maximize(x @ q / unit - lam * r if lam else x @ q / unit), domain)
        with warnings.catch_warnings(action="ignore"):  # "may be inaccurate": 1e-13 is not always certified
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
        p = np.clip(np.asarray(x.value) / unit, 0, 1 if k is None else 1 / k)
        p /= p.sum() if k is None else max(1, p.sum())
        penalty = (p - 1 / K) ** 2 if quadratic else xlogy(p, K * p)
        answers.append((float(p @ q - lam * penalty.sum()), p))
    return max(answers, key=lambda answer: answer[0])
