"""Jobs side by side."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from labelhedge.train import _threads
from labelhedge.train._threads import in_threads, one_thread


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


def threads_of_a_new_one():
    with ThreadPoolExecutor(1) as new:
        return new.submit(torch.get_num_threads).result()


def test_threads_that_compute_with_one_leave_all_others_as_they_are():
    """Two enter one after the other, and leave in the same order."""
    both, first_has_left = threading.Barrier(2), threading.Event()

    def work(first):
        before = torch.get_num_threads()
        with one_thread():
            both.wait(30)
            inside = torch.get_num_threads(), threads_of_a_new_one()
            both.wait(30)
            if not first:
                assert first_has_left.wait(30)
        if first:
            first_has_left.set()
        return before, *inside, torch.get_num_threads()

    own = torch.get_num_threads()
    with ThreadPoolExecutor(1) as user:  # whose count is not that of other threads
        user.submit(torch.get_num_threads).result()  # at first it takes that of all
        user.submit(torch.set_num_threads, 5).result()
        torch.set_num_threads(3)
        try:
            with ThreadPoolExecutor(1) as other:
                results = [pool.submit(work, pool is user) for pool in (user, other)]
                assert [result.result() for result in results] == [(5, 1, 3, 5), (3, 1, 3, 3)]
            assert (torch.get_num_threads(), threads_of_a_new_one()) == (3, 3)
        finally:
            torch.set_num_threads(own)


def test_jobs_side_by_side_compute_with_one_thread_each(monkeypatch):
    monkeypatch.setattr(_threads, "cores", lambda: 2)
    assert in_threads([lambda advance: torch.get_num_threads()] * 3, "cpu", lambda count: None) == [1, 1, 1]
