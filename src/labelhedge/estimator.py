"""A scikit-learn classifier for labels that are partly wrong: ``pip install 'labelhedge[estimator]'``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from labelhedge import losses
from labelhedge._ensemble import Member, Numbers, calibrated
from labelhedge._optional import optional
from labelhedge._random import children
from labelhedge.audit._noise_model import likeliest, posterior
from labelhedge.functional import aldr_lambda
from labelhedge.train.crossfit import (
    FOLDS,
    SAMPLE,
    SETTINGS,
    WITHIN,
    CrossFit,
    Data,
    Family,
    Setting,
    Split,
    best_first,
    epochs_for,
    ranked,
    shortlist,
    stratified,
)

base = optional("sklearn.base", "estimator")
class_weights = optional("sklearn.utils.class_weight", "estimator")
multiclass = optional("sklearn.utils.multiclass", "estimator")
parallel = optional("sklearn.utils.parallel", "estimator")
validation = optional("sklearn.utils.validation", "estimator")
check_random_state = optional("sklearn.utils", "estimator").check_random_state

AUTO = (("sce", {"alpha": 0.05}), ("gce", {"q": 0.7}), ("aldr-kl", {"lambda0": 1.0}))
"""What ``loss="auto"`` chooses from."""
LRS = (0.3, 0.1)


class LabelHedgeClassifier(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[misc, name-defined]
    """Small networks with robust losses, chosen and trained in cross-validation.

    Settings (a loss with its hyperparameter, and a learning rate) are compared by how many labels they predict of rows
    that they have not learned from. The few best predict together, five networks each, every one trained on four
    fifths of the rows. What the networks say of the fifth they have not seen calibrates the probabilities and tells
    which labels are probably wrong. Equal rows with equal labels are kept together, and count as often as they occur.

    Args:
        loss: ``"auto"``, or the id of any loss: see ``lh.losses.names()``.
        params: hyperparameters of this loss; without them those of its tuning grid are tried.
        hidden: units of the hidden layers, ``()`` for a linear classifier.
        lr: learning rate, or ``"auto"``.
        max_epochs: how long to train, or ``"auto"``.
        early_stopping: keep the networks of the epoch in which they predicted most labels of rows they had not seen.
        class_weight: ``"balanced"``, or a dict from classes to weights.
        n_jobs: settings to train at a time; a GPU trains one.
        device: where to train.
        random_state: the same number gives the same classifier.

    Attributes:
        classes_: the labels.
        n_features_in_: number of features; ``feature_names_in_`` their names if they came with any.
        label_quality_: ``(n,)`` probability that each given label is right.
        lam_: ``(n,)`` λ of ALDR-KL for each row, by networks that have not seen it. It lies in [λ0/2, λ0].
        settings_: what was compared, best first.
        best_settings_: what predicts.
        loss_: the best setting's loss.
        n_iter_: epochs after which its networks are kept.
        temperature_: by which the logarithm of the mean probabilities is divided.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> features, labels = load_iris(return_X_y=True)
        >>> labels[0] = 2
        >>> classifier = lh.LabelHedgeClassifier(random_state=0).fit(features, labels)
        >>> classifier.predict(features[:1]), classifier.label_quality_.argmin()
        (array([0]), np.int64(0))
    """

    def __init__(
        self,
        loss: str = "auto",
        *,
        params: Mapping[str, float] | None = None,
        hidden: tuple[int, ...] = (128,),
        lr: float | Literal["auto"] = "auto",
        max_epochs: int | Literal["auto"] = "auto",
        early_stopping: bool = True,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        n_jobs: int | None = None,
        device: torch.device | str = "cpu",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.loss = loss
        self.params = params
        self.hidden = hidden
        self.lr = lr
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Choose settings, train, calibrate.

        Args:
            X: ``(n, features)``, numbers.
            y: ``(n,)``, at least two classes.
            sample_weight: ``(n,)`` how much each row counts; rows that count 0 are not learned from.
        """
        families = self._families()
        given, labels = validation.validate_data(self, X, y, dtype=np.float64)
        multiclass.check_classification_targets(labels)
        weight = validation._check_sample_weight(sample_weight, given, dtype=np.float64, ensure_non_negative=True)
        self.classes_, target = np.unique(labels, return_inverse=True)
        rows = _merge(given, target, weight * self._class_weights(target, weight)[target])
        if len(np.unique(rows.labels)) < 2:
            raise ValueError("y must have two classes or more among rows with a weight, got one class")
        self._mean = np.average(rows.inputs, 0, rows.weight)
        deviation = np.sqrt(np.average((rows.inputs - self._mean) ** 2, 0, rows.weight))
        self._scale = np.where(deviation > 0, deviation, 1)
        inputs = self._standardised(rows.inputs)
        data = Data(inputs.astype(np.float32), rows.labels, len(self.classes_), rows.relative_weight())
        seed = int.from_bytes(check_random_state(self.random_state).bytes(16), "little")
        for_sample, for_choice, for_split = children(seed, 3)
        split = stratified(data.labels, min(FOLDS, len(data.labels)), for_split)
        members = self._train(data, split, self._candidates(data, families, for_sample, for_choice))
        self._ensemble, out_of_sample = calibrated(members, inputs, split.fold, rows.labels, rows.weight)
        self.temperature_ = 1 / self._ensemble.sharpness
        self._judge(given, target, rows, out_of_sample)
        return self

    def predict_proba(self, X: ArrayLike) -> Numbers:
        """Probabilities of the classes, ``(n, K)``."""
        validation.check_is_fitted(self)
        given = validation.validate_data(self, X, dtype=np.float64, reset=False)
        return self._ensemble.probabilities(self._standardised(given))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of each row, ``(n,)``."""
        probabilities = self.predict_proba(X)
        predicted: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return predicted

    def _families(self) -> list[Family]:
        """The losses with hyperparameters that are to be compared; raise if an option is not allowed."""
        if self.max_epochs != "auto" and not (isinstance(self.max_epochs, Integral) and self.max_epochs >= 1):
            raise ValueError(f"max_epochs must be 'auto' or a whole number from 1, got {self.max_epochs!r}")
        if self.lr != "auto" and not (isinstance(self.lr, Real) and self.lr > 0):
            raise ValueError(f"lr must be 'auto' or a positive number, got {self.lr!r}")
        if self.loss == "auto":
            if self.params is not None:
                raise ValueError(f"params must be None with loss='auto', got {self.params!r}")
            return [Family(loss, tuple(self.hidden), params) for loss, params in AUTO]
        spec = losses.get(self.loss)
        for name, value in (self.params or {}).items():
            if name not in spec.defaults:
                allowed = ", ".join(spec.defaults) or "none"
                raise ValueError(f"params must be hyperparameters of {spec.id} ({allowed}), got {name!r}")
            spec.check(name, value)
        grid = spec.grid if self.params is None else (self.params,)
        # None, where it is allowed, is the default
        numbers = [{name: value for name, value in params.items() if value is not None} for params in grid]
        return [Family(spec.id, tuple(self.hidden), params) for params in numbers]

    def _class_weights(self, target: NDArray[np.int64], weight: Numbers) -> Numbers:
        if self.class_weight == "balanced":  # rows count as often as their weight says, for scikit-learn once each
            total = np.bincount(target, weight, len(self.classes_))
            return np.where(total > 0, total.sum() / np.maximum(total, np.finfo(float).tiny), 1)
        labels = self.classes_[target]
        factors: Numbers = class_weights.compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        return factors

    def _standardised(self, inputs: Numbers) -> Numbers:
        standardised: Numbers = (inputs - self._mean) / self._scale
        return standardised

    def _epochs(self, data: Data) -> int:
        return epochs_for(len(data.labels), least=5) if self.max_epochs == "auto" else int(self.max_epochs)

    def _candidates(
        self, data: Data, families: Sequence[Family], for_sample: int, for_choice: int
    ) -> list[tuple[Family, list[float]]]:
        """Families with learning rates to train on all rows: if these are many, what is best on some of them."""
        lrs = list(LRS) if self.lr == "auto" else [self.lr]
        if len(data.labels) <= SAMPLE:
            return [(family, lrs) for family in families]
        sample = data.sample(SAMPLE, for_sample)
        common = {"folds": FOLDS, "epochs": self._epochs(sample), "seed": for_choice, "device": self.device}
        common["early_stopping"] = self.early_stopping
        compared = self._parallel(parallel.delayed(ranked)(sample, [family], lrs, **common) for family in families)
        best = shortlist(best_first(chain.from_iterable(compared)), SETTINGS, WITHIN)
        kept = [(family, [setting.lr for setting in best if setting.family == family]) for family in families]
        return [(family, lrs) for family, lrs in kept if lrs]

    def _train(self, data: Data, split: Split, candidates: Sequence[tuple[Family, list[float]]]) -> list[Member]:
        """The best networks of all candidates."""
        common = {"epochs": self._epochs(data), "device": self.device, "early_stopping": self.early_stopping}
        fits = self._parallel(parallel.delayed(_fit)(data, split, *candidate, **common) for candidate in candidates)
        members = {id(setting): member for fit in fits for setting, member in fit}
        self.settings_ = best_first(setting for fit in fits for setting, _ in fit)
        self.best_settings_ = shortlist(self.settings_, SETTINGS, WITHIN)
        best = [members[id(setting)] for setting in self.best_settings_]
        self.loss_, self.n_iter_ = self.settings_[0].family.loss, best[0].epochs
        return best

    def _parallel(self, jobs: Iterable[Any]) -> list[Any]:
        at_a_time = self.n_jobs if torch.device(self.device).type == "cpu" else 1  # a GPU is busy with one
        done: list[Any] = parallel.Parallel(n_jobs=at_a_time, prefer="threads")(jobs)
        return done

    def _judge(self, given: Numbers, target: NDArray[np.int64], rows: _Rows, out_of_sample: Numbers) -> None:
        """What the networks that have not seen a row make of its label."""
        logs = np.empty((len(given), len(self.classes_)))
        learned = rows.number >= 0
        logs[learned] = out_of_sample[rows.number[learned]]
        if not learned.all():
            logs[~learned] = self._ensemble.log_mean(self._standardised(given[~learned]))
        likely = likeliest(np.exp(logs).astype(np.float32), target)
        self.label_quality_ = posterior(likely, len(self.classes_))[0][:, 0]
        logits = torch.from_numpy((logs - logs.mean(1, keepdims=True)) / self.temperature_)
        params = self.best_settings_[0].family.params
        self.lam_ = aldr_lambda(logits, torch.from_numpy(target), lambda0=params.get("lambda0", 1.0)).numpy()


@dataclass(frozen=True)
class _Rows:
    """Rows that differ and have a weight."""

    inputs: Numbers
    labels: NDArray[np.int64]
    weight: Numbers
    number: NDArray[np.int64]
    """Which of them each of the given rows is, -1 for none: it has no weight."""

    def relative_weight(self) -> NDArray[np.float32] | None:
        """With mean 1, or None if all are the same."""
        if (self.weight == self.weight[0]).all():
            return None
        relative: NDArray[np.float32] = (self.weight / self.weight.mean()).astype(np.float32)
        return relative


def _merge(inputs: Numbers, labels: NDArray[np.int64], weight: Numbers) -> _Rows:
    """Join equal rows, whose weights add up, in an order of their own.

    So a row with the weight 2 is the same as two rows, and no network is asked about a row it has learned from.
    """
    table = np.column_stack([labels, inputs])
    table, number = np.unique(table, axis=0, return_inverse=True)
    total: Numbers = np.bincount(number.ravel(), weight, len(table)).astype(np.float64)
    used = total > 0
    position = np.where(used, np.cumsum(used) - 1, -1)
    table = table[used]
    return _Rows(table[:, 1:], table[:, 0].astype(np.int64), total[used], position[number.ravel()])


def _fit(data: Data, split: Split, family: Family, lrs: list[float], **how: Any) -> list[tuple[Setting, Member]]:
    """The networks of one family, for each learning rate with how many labels they predict."""
    networks = CrossFit(data, [split], family, lrs, **how)
    accuracies = networks.accuracy(data.labels, data.weight)
    return [
        (Setting(family, lr, accuracies[number]), Member(networks.layers(number), networks.epochs[number]))
        for number, lr in enumerate(lrs)
    ]
