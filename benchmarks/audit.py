"""How well wrong labels are found: this package's audit beside cleanlab on four classifiers and on our networks.

    pip install 'labelhedge[audit,data]' 'cleanlab==2.9.*'
    python benchmarks/audit.py [--data vowel digits ...] [--noise u0.1 ...] [--seeds 3] [--rows 5000] [--out FOLDER]

Labels are made wrong on purpose: u, uniformly; cd, between the paper's pairs of similar classes; i, where the features
are ambiguous. cleanlab scores each label by the probability that a classifier of scikit-learn, cross-validated in five
folds, gives it (`get_label_quality_scores`); and by that which the networks of our audit give it, so that the
difference between the two is that of the scores alone. Average precision and AUROC of finding the
changed labels, means over the seeds. Data sets with more than `--rows` rows are cut to so many. Of News20 (TF-IDF,
principal components) all methods get the first 200 components. The classifiers have scikit-learn's defaults (but for
1,000 iterations of LogisticRegression), on standardised features.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from cleanlab.rank import get_label_quality_scores
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labelhedge as lh
from labelhedge.audit import _find
from labelhedge.audit._features import as_matrix
from labelhedge.train.crossfit import Data, stratified

DATA = ("vowel", "digits", "letter", "news20")
NOISE = ("u0.1", "u0.3", "cd0.1", "cd0.3", "i0.2")
COMPONENTS = 200
"""Columns, at most: News20's are principal components, the first ones first."""
OURS = "labelhedge audit"
CLASSIFIERS: dict[str, Callable[[int], ClassifierMixin]] = {
    "LogisticRegression": lambda seed: LogisticRegression(max_iter=1000, random_state=seed),
    "MLPClassifier": lambda seed: MLPClassifier(random_state=seed),
    "HistGradientBoosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "KNeighbors": lambda seed: KNeighborsClassifier(),
}


def load(name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and clean labels, at most ``rows`` of them."""
    data = lh.data.load(name)
    inputs, labels = (np.concatenate([getattr(p, n) for p in (data.train, data.test)]) for n in ("inputs", "labels"))
    if len(labels) > rows:
        inputs, _, labels, _ = train_test_split(inputs, labels, train_size=rows, stratify=labels, random_state=0)
    return inputs[:, :COMPONENTS], labels


def spoil(name: str, noise: str, inputs: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Labels of which some are wrong."""
    kind, rate = noise.rstrip("0.123456789"), float(noise.lstrip("ucdi"))
    if kind == "u":
        return lh.noise.uniform(labels, rate, seed=seed).labels
    if kind == "cd":
        return lh.noise.class_dependent(labels, rate, lh.noise.settings.MAPPINGS.get(name), seed=seed).labels
    return lh.noise.instance_dependent(labels, rate, inputs, seed=seed).labels


def scores(inputs: np.ndarray, given: np.ndarray, seed: int) -> dict[str, tuple[np.ndarray, float, float]]:
    """By each method, how good every label is (higher is better), the seconds it took, and how many it says are wrong.

    cleanlab's scores say nothing of the last.
    """
    found = {}
    start = time.perf_counter()
    classes, labels = _find.numbered(given, len(given))
    data = Data(as_matrix(inputs), labels, len(classes))
    networks, settings = _find.trained(data, seed)
    probability = _find.mean_probability(networks, data)
    audit = _find.audit_of(probability, labels, classes, settings)
    seconds = time.perf_counter() - start
    found[OURS] = (-audit.p_wrong, seconds, audit.wrong)
    found["cleanlab, our networks"] = (get_label_quality_scores(labels, probability.numpy()), seconds, np.nan)
    fold = stratified(given, 5, seed + 1).fold
    folds = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(5)]
    for name, make in CLASSIFIERS.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier = make_pipeline(StandardScaler(), make(seed))
            probability = cross_val_predict(classifier, inputs, given, cv=folds, method="predict_proba")
        quality = get_label_quality_scores(given, probability)
        found[f"cleanlab, {name}"] = (quality, time.perf_counter() - start, np.nan)
    return found


def tables(frame: pd.DataFrame) -> str:
    """Means over the seeds as Markdown, the best of each setting in bold."""
    lines = []
    for measure, title in (("average_precision", "Average precision"), ("auroc", "AUROC"), ("seconds", "Seconds")):
        table = frame.pivot_table(index=["data", "noise"], columns="method", values=measure, sort=False)
        table.loc[("mean", ""), :] = table.mean()
        columns = [str(name).removeprefix("cleanlab, ") for name in table.columns]
        lines += [f"## {title}", "", row("data", "noise", *columns), row("---", "---", *["---:"] * len(columns))]
        digits = 0 if measure == "seconds" else 3
        for names, values in table.round(digits).iterrows():
            best = values.max() if digits else values.min()
            cells = [f"**{value:.{digits}f}**" if value == best else f"{value:.{digits}f}" for value in values]
            lines.append(row(*names, *cells))
        lines.append("")
    shares = frame[frame["method"] == OURS].groupby(["data", "noise"], sort=False)[["wrong", "estimated"]].mean()
    lines += ["## How many are wrong", "", row("data", "noise", "percent", "estimated")]
    lines += [row("---", "---", "---:", "---:")]
    lines += [row(*names, *(f"{100 * share:.1f}" for share in values)) for names, values in shares.iterrows()]
    return "\n".join(lines)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--noise", nargs="*", default=NOISE)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--out", type=Path, help="folder for audit.csv and audit.md")
    args = parser.parse_args()
    results = []
    for name in args.data:
        inputs, clean = load(name, args.rows)
        for noise in args.noise:
            for seed in range(args.seeds):
                given = spoil(name, noise, inputs, clean, seed)
                wrong = given != clean
                for method, (quality, seconds, estimated) in scores(inputs, given, seed).items():
                    results.append(
                        {
                            "data": name, "rows": len(clean), "noise": noise, "seed": seed, "method": method,
                            "average_precision": average_precision_score(wrong, -quality),
                            "auroc": roc_auc_score(wrong, -quality), "seconds": seconds,
                            "wrong": wrong.mean(), "estimated": estimated / len(clean),
                        }
                    )  # fmt: skip
                    print(*results[-1].values(), sep="\t", flush=True)
    frame = pd.DataFrame(results)
    print("\n" + tables(frame))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        frame.to_csv(args.out / "audit.csv", index=False)
        (args.out / "audit.md").write_text(tables(frame))


if __name__ == "__main__":
    main()
