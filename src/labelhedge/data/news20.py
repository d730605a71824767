"""20 Newsgroups from LIBSVM's word counts: TF-IDF, then the principal components with 80 % of the variance."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelhedge._optional import optional
from labelhedge.data._prepare import TENTH, split_off_test
from labelhedge.data._record import Dataset, DatasetInfo, Part, RemoteFile
from labelhedge.data._store import Store
from labelhedge.data.formats.libsvm import read_libsvm
from labelhedge.data.tabular import LIBSVM, count_from_zero

VARIANCE = 0.8
GROUPS = (
    *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware"),
    *("comp.sys.mac.hardware", "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles"),
    *("rec.sport.baseball", "rec.sport.hockey", "sci.crypt", "sci.electronics", "sci.med", "sci.space"),
    *("soc.religion.christian", "talk.politics.guns", "talk.politics.mideast", "talk.politics.misc"),
    "talk.religion.misc",
)


def read_news20(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """LIBSVM's file; the components are computed once for each seed and kept."""
    path = store.ensure(info.files[0])
    counts, labels = read_libsvm(path, num_features=62_061, num_rows=info.num_train + info.num_test)
    labels = count_from_zero(labels, info.num_classes, path)
    train, test = split_off_test(len(labels), seed)

    def make(folder: Path) -> None:
        task = f"TF-IDF and PCA of {len(train):,} rows (some minutes, once)"
        store.progress(task, 0, None, "")
        for name, rows in zip(("train", "test"), tf_idf_components(counts[train], counts[test]), strict=True):
            np.save(folder / f"{name}.npy", rows)
        store.progress(task, 1, 1, "")

    folder = store.derived("news20", f"pca-seed{seed}", path, make)
    inputs = [np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in ("train", "test")]
    return Dataset(info, Part(inputs[0], labels[train]), Part(inputs[1], labels[test]), GROUPS)


def tf_idf_components(train: Any, test: Any, variance: float = VARIANCE) -> tuple[NDArray[Any], NDArray[Any]]:
    """TF-IDF and principal components of sparse counts, both fitted on the training rows.

    With X the centred training rows, the Gram matrix XXᵀ = UΛUᵀ is all that is needed: the components of the training
    rows are UΛ^½, those of others (X_test Xᵀ)UΛ^-½. Neither the centred rows nor the components' directions, both
    dense with a column for every word, are ever formed.

    Args:
        train: word counts, a sparse ``(N, words)`` matrix.
        test: word counts of other rows.
        variance: share of the training rows' variance that the components must have.

    Returns:
        The components of the training and of the test rows, float32, the largest first.
    """
    transform = optional("sklearn.feature_extraction.text", "data").TfidfTransformer().fit(train)
    train, test = (transform.transform(rows).astype(np.float32) for rows in (train, test))
    mean = np.asarray(train.mean(0)).ravel()
    gram = _centred_products(train, train, mean)
    total = np.trace(gram, dtype=np.float64)
    values, vectors = optional("scipy.linalg", "data").eigh(
        gram,
        overwrite_a=True,
        check_finite=False,
        driver="evd",  # the fastest for that many vectors, by far
    )
    share = np.cumsum(values[::-1], dtype=np.float64) / total
    count = min(int(np.searchsorted(share, variance)) + 1, len(values))
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    scale = np.sqrt(values)
    return vectors * scale, _centred_products(test, train, mean) @ (vectors / scale)


def _centred_products(a: Any, b: Any, mean: NDArray[Any]) -> NDArray[np.float32]:
    """(a - mean)(b - mean)ᵀ, from the sparse product."""
    products: NDArray[np.float32] = (a @ b.T).toarray()
    products -= (a @ mean)[:, None]
    products -= (b @ mean)[None, :]
    products += mean @ mean
    return products


NEWS20 = DatasetInfo(
    name="news20",
    title="20 Newsgroups",
    num_classes=20,
    num_train=14_341,
    num_test=1_594,
    inputs="about 4,000 numbers",
    split=TENTH,
    preprocessing="62,060 word counts to TF-IDF, then to the principal components with 80 % of the variance, "
    "both fitted on training rows",
    source="http://qwone.com/~jason/20Newsgroups/",
    licence="none stated",
    citation="K. Lang, NewsWeeder: Learning to Filter Netnews, ICML 1995",
    read=read_news20,
    files=(
        RemoteFile(
            "news20",
            "news20.bz2",
            f"{LIBSVM}/news20.bz2",
            "sha256:8c79851f6f5fdc5540a0d04a5ab728353c42d26b84e73f93bda301c06c15ffe9",
            unpacked="news20",
        ),
    ),
)
