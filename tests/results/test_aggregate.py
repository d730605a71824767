"""From trained networks to ranks, against cases computed by hand and against SciPy."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from labelhedge.results import aggregate
from labelhedge.results.aggregate import (
    accuracies,
    choose,
    critical_difference,
    one_protocol,
    ranks,
    running_time,
    significance,
    tuning,
)
from labelhedge.results.schema import TEST


def network(val, test=0.5, fold=0, **other):
    row = {"protocol": "p-1", "dataset": "d", "noise": "uniform", "rate": 0.3, "loss": "ce", "seed": 0, "fold": fold}
    row |= {"lr": 0.1, "weight_decay": 0.0, "params": "{}", "val_top1": val}
    return row | dict.fromkeys(TEST, test) | other


def table(values, k=1):
    """Accuracies from {(data set, noise, rate): {loss: mean}}."""
    rows = [(*setting, loss, k, mean, 0.0, 5) for setting, by_loss in values.items() for loss, mean in by_loss.items()]
    return pd.DataFrame(rows, columns=["dataset", "noise", "rate", "loss", "k", "mean", "std", "networks"])


def random_table(losses, settings, seed=0, digits=2):
    means = np.random.default_rng(seed).random((settings, losses)).round(digits)
    return means, table(
        {(f"d{i:02}", "clean", 0.0): {f"l{j}": m for j, m in enumerate(row)} for i, row in enumerate(means)}
    )


def test_the_configuration_with_the_best_mean_over_folds_is_chosen():
    rows = [
        network(val, fold=fold, lr=lr)
        for lr, vals in ((0.1, (0.9, 0.1)), (0.01, (0.6, 0.5)))
        for fold, val in enumerate(vals)
    ]
    chosen = choose(pd.DataFrame(rows))
    assert chosen["lr"].tolist() == [0.01, 0.01]
    assert chosen["fold"].tolist() == [0, 1]
    assert chosen.index.tolist() == [2, 3]


@pytest.mark.parametrize("column", ["lr", "weight_decay", "params"])
def test_each_tuned_column_makes_a_configuration(column):
    values = ('{"q": 1}', '{"q": 2}') if column == "params" else (0.5, 0.25)
    chosen = choose(
        pd.DataFrame([network(val, **{column: value}) for value, val in zip(values, (0.2, 0.3), strict=True)])
    )
    assert chosen[column].tolist() == [values[1]]


@pytest.mark.parametrize("column", ["protocol", "dataset", "noise", "rate", "loss", "seed"])
def test_each_cell_chooses_for_itself(column):
    values = {"rate": (0.1, 0.2), "seed": (0, 1)}.get(column, ("a", "b"))
    rows = [
        network(val, lr=lr, **{column: v})
        for v, vals in zip(values, ((0.2, 0.3), (0.3, 0.2)), strict=True)
        for lr, val in zip((1.0, 2.0), vals, strict=True)
    ]
    assert choose(pd.DataFrame(rows))["lr"].tolist() == [2.0, 1.0]


def test_the_first_of_equal_configurations_is_chosen_whatever_the_order_of_the_folds():
    folds = (0.1, 0.2, 0.3)
    assert sum(folds) != sum(folds[::-1])  # in floating point; the accuracies are equal
    for first in (folds, folds[::-1]):
        rows = [
            network(val, fold=f, lr=lr) for lr, vals in ((3.0, first), (1.0, first[::-1])) for f, val in enumerate(vals)
        ]
        assert choose(pd.DataFrame(rows))["lr"].unique().tolist() == [3.0]


def test_one_sample_more_decides():
    rows = [network(5_000 / 50_000, lr=1.0), network(5_001 / 50_000, lr=2.0)]
    assert choose(pd.DataFrame(rows))["lr"].tolist() == [2.0]


def test_a_configuration_without_an_accuracy_loses():
    rows = [network(np.nan, lr=1.0), network(0.9, fold=1, lr=1.0), network(0.1, lr=2.0), network(0.1, fold=1, lr=2.0)]
    assert choose(pd.DataFrame(rows))["lr"].tolist() == [2.0, 2.0]
    assert choose(pd.DataFrame([network(np.nan, lr=1.0), network(np.nan, lr=2.0)]))["lr"].tolist() == [1.0]


def test_nothing_is_chosen_from_nothing():
    assert choose(pd.DataFrame([network(0.5)]).iloc[:0]).empty


def test_test_accuracies_play_no_part_in_the_choice():
    random = np.random.default_rng(0)
    configurations = [(fold, lr, f'{{"q": {q}}}') for lr in (0.1, 0.01) for q in range(4) for fold in range(5)]
    frame = pd.DataFrame(
        [
            network(round(random.random(), 2), fold=fold, lr=lr, params=params, loss=loss)
            for loss in "abc"
            for fold, lr, params in configurations
        ]
    )
    expected = choose(frame).index.tolist()
    assert len(expected) == 15
    for _ in range(3):
        frame[list(TEST)] = random.random((len(frame), 5))
        assert choose(frame).index.tolist() == expected
    assert choose(frame.drop(columns=list(TEST))).index.tolist() == expected


def test_the_choice_agrees_with_a_plain_search():
    random = np.random.default_rng(1)
    rows = [
        network(random.integers(0, 4) / 4, fold=fold, lr=lr, seed=seed)
        for seed in range(20)
        for lr in (0.1, 0.2, 0.3)
        for fold in range(2)
    ]
    chosen = choose(pd.DataFrame(rows))
    for seed in range(20):
        means = {lr: sum(r["val_top1"] for r in rows if (r["seed"], r["lr"]) == (seed, lr)) for lr in (0.1, 0.2, 0.3)}
        assert set(chosen[chosen["seed"] == seed]["lr"]) == {max(means, key=means.get)}


def test_accuracies_are_mean_and_population_std_over_folds_and_seeds():
    rows = [network(0.5, test, fold=fold, seed=seed) for test, fold, seed in ((0.1, 0, 0), (0.2, 1, 0), (0.6, 0, 1))]
    result = accuracies(pd.DataFrame(rows))
    assert result.columns.tolist() == ["dataset", "noise", "rate", "loss", "k", "mean", "std", "networks"]
    assert result["k"].tolist() == [1, 2, 3, 4, 5]
    assert result["networks"].tolist() == [3] * 5
    assert result["mean"].to_numpy() == pytest.approx(0.3)
    assert result["std"].to_numpy() == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 3))


def test_each_k_has_its_own_accuracy_and_empty_ones_have_none():
    rows = [network(0.5, test_top1=0.1, test_top2=0.2, test_top3=0.3, test_top4=np.nan, test_top5=np.nan)]
    result = accuracies(pd.DataFrame(rows))
    assert dict(zip(result["k"], result["mean"], strict=True)) == {1: 0.1, 2: 0.2, 3: 0.3}
    assert result["std"].isna().all()  # of a single network


def test_a_mean_of_only_some_folds_is_not_given():
    result = accuracies(pd.DataFrame([network(0.5, test_top1=np.nan), network(0.5, fold=1)]))
    assert result["k"].tolist() == [2, 3, 4, 5]


def test_protocols_do_not_mix():
    frame = pd.DataFrame([network(0.5, protocol="fair-2"), network(0.5)])
    message = r"there are results of 2 protocols, choose one with --protocol: fair-2 \(d\), p-1 \(d\)"
    with pytest.raises(ValueError, match=message):
        accuracies(frame)
    with pytest.raises(ValueError, match=r"no results of protocol 'x', only of: fair-2 \(d\), p-1 \(d\)"):
        one_protocol(frame, "x")
    assert one_protocol(frame, "p-1").index.tolist() == [1]
    assert one_protocol(frame[1:]).index.tolist() == [1]


def test_ranks_by_hand():
    ranking = ranks(
        table(
            {("d", "clean", 0.0): {"a": 0.9, "b": 0.5, "c": 0.5}, ("e", "clean", 0.0): {"a": 0.1, "b": 0.3, "c": 0.2}}
        )
    )
    assert ranking.by_setting.to_dict("list") == {"a": [1.0, 3.0], "b": [2.5, 1.0], "c": [2.5, 2.0]}
    assert ranking.mean["overall"].to_dict() == {"b": 1.75, "a": 2.0, "c": 2.25}
    assert ranking.mean.index.tolist() == ["b", "a", "c"] == ranking.std.index.tolist()
    assert ranking.std[1].tolist() == [0.75, 1.0, 0.25]
    assert ranking.settings == 2
    assert ranking.left_out == {}


def test_overall_is_over_all_k():
    setting = ("d", "clean", 0.0)
    both = pd.concat([table({setting: {"a": 0.9, "b": 0.5}}, k=1), table({setting: {"a": 0.9, "b": 0.95}}, k=2)])
    ranking = ranks(both)
    assert ranking.mean.loc["a"].to_dict() == {1: 1.0, 2: 2.0, "overall": 1.5}
    assert ranking.std.loc["a"].to_dict() == {1: 0.0, 2: 0.0, "overall": 0.5}
    assert ranking.settings == 1


def test_a_difference_of_rounding_is_a_tie():
    ranking = ranks(table({("d", "clean", 0.0): {"a": 0.1 + 0.2 + 0.3, "b": 0.3 + 0.2 + 0.1}}))
    assert ranking.mean["overall"].tolist() == [1.5, 1.5]


def test_only_settings_with_every_loss_count():
    full = {"a": 0.9, "b": 0.5, "c": 0.1}
    ranking = ranks(
        table({("d", "clean", 0.0): full, ("d", "uniform", 0.3): {"c": 0.9}, ("e", "clean", 0.0): {"a": 0.1, "c": 0.9}})
    )
    assert ranking.left_out == {("d", "uniform", 0.3): ("a", "b"), ("e", "clean", 0.0): ("b",)}
    assert ranking.settings == 1
    assert ranking.mean["overall"].to_dict() == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_a_setting_that_lacks_one_k_of_one_loss_is_left_out_whole():
    setting = ("d", "clean", 0.0)
    rows = pd.concat([table({setting: {"a": 0.9, "b": 0.5}}, k=1), table({setting: {"a": 0.9}}, k=2)])
    ranking = ranks(rows)
    assert ranking.left_out == {setting: ("b",)}
    assert ranking.settings == 0


def test_ranks_and_friedman_agree_with_scipy():
    means, frame = random_table(losses=7, settings=12, digits=1)
    ranking = ranks(frame)
    assert (ranking.by_setting.to_numpy() == stats.rankdata(-means, axis=1)).all()
    result = significance(ranking)
    expected = stats.friedmanchisquare(*-means.T)
    assert (result.statistic, result.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-12)
    assert result.settings == 12
    assert list(result.ranks.values()) == sorted(result.ranks.values())


# Demšar (2006), Table 5(a): critical values of the two-tailed Nemenyi test
@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.05, (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)),
        (0.10, (1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920)),
    ],
)
def test_critical_values_are_those_of_demsar(alpha, expected):
    found = [critical_difference(n, 10, alpha) / math.sqrt(n * (n + 1) / 60) for n in range(2, 11)]
    assert found == pytest.approx(expected, abs=1.1e-3)  # the published ones are rounded


def test_groups_are_the_largest_runs_within_the_critical_difference():
    assert aggregate._groups("abcd", (1.0, 1.5, 2.0, 4.0), 1.0) == (("a", "b"), ("b", "c"))  # a difference of CD counts
    assert aggregate._groups("abcd", (1.0, 1.5, 1.9, 4.0), 1.0) == (("a", "b", "c"),)
    assert aggregate._groups("abc", (1.0, 3.0, 5.0), 1.0) == ()
    assert aggregate._groups("abc", (2.0, 2.0, 2.0), 1.0) == (("a", "b", "c"),)


def test_significance_needs_three_losses_and_two_settings():
    assert significance(ranks(random_table(2, 5)[1])) is None
    assert significance(ranks(random_table(5, 1)[1])) is None
    assert significance(ranks(random_table(3, 2)[1])) is not None


def test_losses_that_tie_everywhere_do_not_differ():
    result = significance(ranks(table({(name, "clean", 0.0): dict.fromkeys("abc", 0.5) for name in "de"})))
    assert (result.statistic, result.p) == (0.0, 1.0)
    assert result.groups == (("a", "b", "c"),)


def test_significance_is_of_top_1():
    _, first = random_table(4, 6)
    second = first.assign(k=2, mean=first["mean"][::-1].to_numpy())
    assert significance(ranks(pd.concat([first, second]))) == significance(ranks(first))


def test_each_choice_of_hyperparameters_has_its_own_learning_rate_and_weight_decay():
    vals = {
        ("a", 0.1, 0.0): (0.2, 0.3), ("a", 0.01, 0.0): (0.6, 0.4), ("a", 0.1, 1.0): (0.9, 0.0),
        ("b", 0.1, 0.0): (0.1, 0.1), ("b", 0.01, 0.0): (0.0, 0.0), ("b", 0.1, 1.0): (0.2, 0.4),
    }  # fmt: skip
    rows = [
        network(val, fold=fold, params=params, lr=lr, weight_decay=decay)
        for (params, lr, decay), pair in vals.items()
        for fold, val in enumerate(pair)
    ]
    made = tuning(pd.DataFrame(rows)).set_index("params")
    assert made["mean"].to_dict() == pytest.approx({"a": 0.5, "b": 0.3})
    assert made["std"].to_dict() == pytest.approx({"a": 0.1, "b": 0.1})
    assert made["networks"].tolist() == [2, 2]


def test_hyperparameters_are_averaged_over_seeds_that_choose_for_themselves():
    vals = {(0, 1.0): 0.2, (0, 2.0): 0.4, (1, 1.0): 0.8, (1, 2.0): 0.6}
    rows = [network(val, seed=seed, lr=lr, params=params) for (seed, lr), val in vals.items() for params in "ab"]
    made = tuning(pd.DataFrame(rows))
    assert made["params"].tolist() == ["a", "b"]
    assert made["mean"].tolist() == pytest.approx([0.6, 0.6])
    assert made["std"].tolist() == pytest.approx([0.2, 0.2])


def test_a_single_choice_of_hyperparameters_is_no_comparison():
    rows = [network(0.5, loss="one", lr=lr) for lr in (1.0, 2.0)]
    rows += [network(0.5, loss="already tuned", noise=noise, params=noise) for noise in ("u", "v")]
    assert tuning(pd.DataFrame(rows)).empty
    rows += [network(0.5, loss="two", params=params) for params in "ab"]
    assert tuning(pd.DataFrame(rows))["loss"].tolist() == ["two", "two"]


def test_hyperparameters_without_a_validation_accuracy_are_left_out():
    rows = [network(0.5, params="a"), network(np.nan, params="b"), network(0.5, params="b", fold=1)]
    assert tuning(pd.DataFrame(rows))["params"].tolist() == ["a"]


def test_seconds_per_epoch():
    times = [(10.0, 10), (60.0, 20), (4.0, 2)]
    rows = [network(0.5, fold=fold, seconds=s, epochs=e) for fold, (s, e) in enumerate(times)]
    rows.append(network(0.5, dataset="other", seconds=5.0, epochs=10))
    made = running_time(pd.DataFrame(rows))
    assert made["dataset"].tolist() == ["d", "other"]
    assert made["mean"].tolist() == pytest.approx([2.0, 0.5])
    assert made["std"].tolist() == pytest.approx([math.sqrt(2 / 3), math.nan], nan_ok=True)
    assert made["networks"].tolist() == [3, 1]


def test_neither_mixes_protocols():
    rows = pd.DataFrame([network(0.5, protocol=p, params=q, seconds=1.0, epochs=1) for p in "xy" for q in "ab"])
    for function in (tuning, running_time):
        with pytest.raises(ValueError, match="2 protocols"):
            function(rows)
