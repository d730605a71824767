"""LabelHedgeClassifier against scikit-learn's classifiers, all with default settings, where labels are wrong.

    python benchmarks/estimator.py                             # Vowel and digits, 30 % uniform noise, 3 seeds
    python benchmarks/estimator.py --datasets letter --noise 0.5

Accuracy on clean test labels and seconds to fit, means over the seeds; each seed has its own noise. Inputs are
standardised for every classifier.
"""

import argparse
import platform
import time
import warnings

import numpy as np
import sklearn
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labelhedge as lh

CLASSIFIERS = {
    "LabelHedgeClassifier": lambda seed: lh.LabelHedgeClassifier(random_state=seed),
    "MLPClassifier": lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
    "LogisticRegression": lambda seed: make_pipeline(StandardScaler(), LogisticRegression()),
}


def measured(dataset: str, noise: float, seed: int, name: str) -> tuple[float, float, float]:
    """Accuracy, seconds, and how well label_quality_ tells wrong labels from right ones (area under the ROC curve)."""
    data = lh.data.load(dataset)
    noisy = lh.noise.uniform(data.train.labels, noise, num_classes=data.num_classes, seed=seed)
    classifier = CLASSIFIERS[name](seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the defaults are the defaults
        classifier.fit(data.train.inputs, noisy.labels)
    seconds = time.perf_counter() - start
    quality = getattr(classifier, "label_quality_", None)
    found = np.nan if quality is None else roc_auc_score(noisy.flipped, 1 - quality)
    return classifier.score(data.test.inputs, data.test.labels), seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["vowel", "digits"])
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print(f"{args.noise:.0%} uniform noise, {args.seeds} seeds, {platform.processor() or platform.machine()}, ", end="")
    print(f"torch {torch.__version__}, scikit-learn {sklearn.__version__}\n")
    print("| data | classifier | accuracy | std | seconds | wrong labels found, AUROC |\n|---|---|---|---|---|---|")
    for dataset in args.datasets:
        for name in CLASSIFIERS:
            runs = np.array([measured(dataset, args.noise, seed, name) for seed in range(args.seeds)])
            accuracy, seconds, found = runs.mean(0)
            shown = "" if np.isnan(found) else f"{found:.3f}"
            std = runs[:, 0].std(ddof=1)
            print(f"| {dataset} | {name} | {accuracy:.4f} | {std:.4f} | {seconds:.1f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
