import json
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

import labelhedge as lh
from conftest import real_file
from labelhedge.data._prepare import split_off_test
from labelhedge.data.news20 import GROUPS, tf_idf_components
from tests.data.publishers import write_libsvm


@pytest.fixture(scope="module")
def counts():
    """Word counts of 1,000 messages of all groups, and their groups from 1 to 20 as LIBSVM counts."""
    if path := real_file("news20_raw_text.json.xz"):
        with lzma.open(path) as file:
            news = json.load(file)
        assert tuple(news["cats"]) == GROUPS
        some = slice(None, 11_000, 11)
        words = CountVectorizer(max_features=3_000).fit_transform(news["train"][some])
        return words, np.array(news["y_train"][some]) + 1
    rng = np.random.default_rng(0)
    rows = sp.csr_matrix(rng.poisson(0.05, (1_000, 3_000)) * (1 + 9 * (rng.random((1_000, 3_000)) < 0.1)))
    return rows, np.arange(1_000) % 20 + 1


def test_components_are_those_of_scikit_learn(counts):
    train, test = counts[0][:900], counts[0][900:]
    found = tf_idf_components(train, test)
    weights = TfidfTransformer().fit(train)
    pca = PCA(0.8, svd_solver="full").fit(weights.transform(train).toarray())
    expected = [pca.transform(weights.transform(rows).toarray()) for rows in (train, test)]
    assert found[0].shape == expected[0].shape
    assert found[1].dtype == np.float32
    signs = np.sign((found[0] * expected[0]).sum(0))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours[:, :100] * signs[:100], theirs[:, :100], atol=2e-4)
        np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-4)


def test_they_have_the_share_of_variance_that_is_asked_for(counts):
    rows = counts[0]
    everything = TfidfTransformer().fit_transform(rows).toarray().var(0).sum()
    for share in (0.5, 0.8, 0.95):
        components, _ = tf_idf_components(rows, rows[:1], share)
        variances = components.var(0)
        assert variances.sum() >= share * everything * (1 - 1e-5)
        assert variances[:-1].sum() < share * everything


def test_test_rows_change_nothing_in_the_training_rows(counts):
    alone, _ = tf_idf_components(counts[0][:500], counts[0][500:501])
    together, _ = tf_idf_components(counts[0][:500], counts[0][500:])
    assert np.array_equal(alone, together)


@pytest.mark.parametrize("name", ["news20", "news20.bz2"])
def test_news20(tmp_path, published, monkeypatch, counts, name):
    published("news20", num_train=900, num_test=100)
    rows, labels = counts
    write_libsvm(tmp_path / "news20" / name, rows.toarray(), labels)
    data = lh.data.load("news20", root=tmp_path, download=False, seed=5)
    train, test = split_off_test(1_000, 5)
    expected = tf_idf_components(rows[train], rows[test])
    np.testing.assert_allclose(data.train.inputs @ data.train.inputs.T, expected[0] @ expected[0].T, atol=1e-4)
    assert np.array_equal(data.test.labels, labels[test] - 1)
    assert data.class_names == GROUPS

    monkeypatch.setattr("labelhedge.data.news20.tf_idf_components", None)
    again = lh.data.load("news20", root=tmp_path, download=False, seed=5)
    assert np.array_equal(again.train.inputs, data.train.inputs)
    with pytest.raises(TypeError):
        lh.data.load("news20", root=tmp_path, download=False, seed=6)
