"""Jobs side by side."""

import threading
from functools import partial

import pytest

from labelhedge.train import _threads
from labelhedge.train._threads import in_threads


def test_results_stand_in_the_order_of_the_jobs():
    told = []
    jobs = [partial(lambda number, advance: advance(number) or number, number) for number in range(5)]
    assert in_threads(jobs, "cpu", told.append) == [0, 1, 2, 3, 4]
    assert sorted(told) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_where_one_fails_the_others_end(error, monkeypatch):
    monkeypatch.setattr(_threads, "cores", lambda: 2)
    other_runs = threading.Event()

    def fails(advance):
        assert other_runs.wait(30)
        raise error("no luck")

    def runs(advance):
        other_runs.set()
        for _ in range(10**9):
            advance(1)

    with pytest.raises(error, match="no luck"):
        in_threads([fails, runs], "cpu", lambda count: None)
