"""Slots and queue without a device: each test plays the worker."""

import numpy as np
import pytest

from stages.policy import SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.sampling import Drawn, request_key
from stages.rollout.schedule import Schedule
from stages.rollout.steps import Copy, Exchange, Job
from stages.rollout.stops import Stops


def job(session: str, ids: list[int], max_tokens: int = 4, stop_ids: tuple[int, ...] = (9,)) -> Job:
    key = (0, 0, 0, 0, 0)
    request = SampleRequest(np.array(ids, np.int32), max_tokens, stop_ids, 1.0, key, session)
    return Job(request, request_key(key), Stops(request))


def schedule_of(slots: int, length: int, rows: int = 2, chunk: int = 3, **changes) -> Schedule:
    return Schedule(EngineConfig(slots=slots, context_length=length, prefill_rows=rows, prefill_chunk=chunk, **changes))


def admit(schedule: Schedule, *jobs: Job) -> None:
    for one in jobs:
        schedule.submit(one)
    schedule.admit()


def read_in_all(schedule: Schedule) -> list[list[list[int]]]:
    """All prefill steps until none is left: per step, the real tokens of each row."""
    steps = []
    while (work := schedule.read_in()) is not None:
        steps.append([row[:num].tolist() for row, num in zip(work.ids_RC, work.lengths_R, strict=True) if num])
        schedule.commit_read_in(work)
    return steps


def step(schedule: Schedule, token: int, logprob: float = -1.0, version: int = 0) -> list:
    """A decode step in which every slot samples ``token``."""
    work = schedule.decode()
    num = len(work.ids_N)
    logprobs = np.full(num, logprob, np.float32)
    return schedule.commit_decode(work, Drawn(np.full(num, token, np.int32), logprobs, logprobs), version)


def test_context_is_read_in_by_chunks_up_to_its_last_token_which_the_first_decode_step_feeds():
    schedule = schedule_of(2, 16)
    admit(schedule, job("a", [1, 2, 3, 4, 5]), job("b", [6]))
    assert read_in_all(schedule) == [[[1, 2, 3], [4]]]
    work = schedule.decode()
    assert work.ids_N.tolist() == [5, 6]
    assert work.positions_N.tolist() == [4, 0]
    assert work.lengths_N.tolist() == [1, 1]


def test_context_longer_than_what_is_left_of_a_step_goes_on_in_the_next_one():
    schedule = schedule_of(2, 16, rows=3)
    admit(schedule, job("a", [1, 2, 3, 4, 5]), job("b", [6, 7, 8, 9, 1]))
    assert read_in_all(schedule) == [[[1, 2, 3], [4], [6, 7, 8]], [[9]]]


def test_decode_step_has_the_smallest_size_that_holds_all_that_are_ready():
    """Slots that are not busy are left out; rows to spare take no part."""
    schedule = schedule_of(17, 16)
    names = "abcdefghijklmnopq"
    admit(schedule, *(job(name, [ord(name)]) for name in names))
    sizes = []
    for name in names[:-1]:
        sizes.append(len(schedule.decode().ids_N))
        schedule.abort(name)
    assert sizes == 9 * [17] + 7 * [8]
    work = schedule.decode()
    assert (work.slots_N[0], work.ids_N[0], work.lengths_N.tolist()) == (16, ord("q"), [1] + 7 * [0])


def test_rows_of_one_prefill_step_go_to_the_requests_that_came_first():
    schedule = schedule_of(3, 16)
    admit(schedule, job("a", [1, 1]), job("b", [2, 2]), job("c", [3, 3]))
    assert read_in_all(schedule) == [[[1], [2]], [[3]]]


def test_slot_still_reading_in_takes_no_part_in_decoding():
    schedule = schedule_of(2, 16)
    admit(schedule, job("a", [1]), job("b", [1, 2, 3]))
    assert schedule.decode().lengths_N.tolist() == [1, 0]


def test_reply_ends_at_a_stop_token_which_is_part_of_it():
    """S87, S35: any token of the stop set ends the reply, and that is what the reason says."""
    schedule = schedule_of(1, 16)
    admit(schedule, job("a", [1, 2], max_tokens=8, stop_ids=(9, 7)))
    read_in_all(schedule)
    assert step(schedule, 4, version=3) == []
    [(_, sample)] = step(schedule, 7, version=4)
    assert (sample.ids.tolist(), sample.versions.tolist(), sample.stop_reason) == ([4, 7], [3, 4], "stop")
    assert schedule.num_busy == 0


def test_reply_cut_at_its_budget_says_length_and_a_stop_token_in_the_last_place_says_stop():
    """S47."""
    for last, reason in ((5, "length"), (9, "stop")):
        schedule = schedule_of(1, 16)
        admit(schedule, job("a", [1], max_tokens=2))
        step(schedule, 4)
        [(_, sample)] = step(schedule, last)
        assert (sample.ids.tolist(), sample.stop_reason) == ([4, last], reason)


def test_reply_ends_where_the_context_is_full():
    """S34: the budget shrinks to what fits."""
    schedule = schedule_of(1, 5)
    admit(schedule, job("a", [1, 2, 3], max_tokens=100))
    read_in_all(schedule)
    step(schedule, 4)
    [(_, sample)] = step(schedule, 4)
    assert (sample.ids.tolist(), sample.stop_reason) == ([4, 4], "length")


def test_next_turn_reads_in_only_what_is_new():
    """The reply's last token was sampled but never fed, so it is read in with the new ones."""
    schedule = schedule_of(1, 16)
    admit(schedule, job("a", [1, 2, 3]))
    read_in_all(schedule)
    step(schedule, 4), step(schedule, 9)
    admit(schedule, job("a", [1, 2, 3, 4, 9, 5, 6]))
    assert read_in_all(schedule) == [[[9, 5]]]


@pytest.mark.parametrize(
    ("ids", "read"), [([1, 2, 8, 4, 5], [[[8, 4]]]), ([1, 2], []), ([1, 2, 3, 4], [[[3]]]), ([7, 2, 3], [[[7, 2]]])]
)
def test_context_that_departs_from_the_cached_one_is_read_in_from_the_first_difference(ids, read):
    """Cached after the first turn: 1 2. A context that is cached in full still feeds its last token."""
    schedule = schedule_of(1, 16)
    admit(schedule, job("a", [1, 2, 3], max_tokens=1))
    work = schedule.read_in()
    schedule.commit_read_in(work)
    # The turn is given up before its last token is fed.
    schedule.cancel(schedule.jobs[0])
    admit(schedule, job("a", ids))
    assert read_in_all(schedule) == read


def test_requests_beyond_the_slots_wait_in_order():
    schedule = schedule_of(1, 16)
    jobs = [job(name, [1], max_tokens=1) for name in "abc"]
    admit(schedule, *jobs)
    finished = []
    while schedule.num_busy:
        finished += [ended for ended, _ in step(schedule, 4)]
        schedule.admit()
    assert finished == jobs


def test_idle_session_unused_for_longest_loses_its_slot():
    schedule = schedule_of(2, 16)
    admit(schedule, job("a", [1, 1, 1], max_tokens=1), job("b", [2, 2, 2], max_tokens=1))
    read_in_all(schedule)
    step(schedule, 9)
    admit(schedule, job("a", [1, 1, 1, 9, 5], max_tokens=1))
    read_in_all(schedule)
    step(schedule, 9)
    admit(schedule, job("c", [3, 3], max_tokens=1))
    assert schedule.rows.evictions == 1
    read_in_all(schedule)
    step(schedule, 9)
    admit(schedule, job("a", [1, 1, 1, 9, 5, 9, 6]))
    assert read_in_all(schedule) == [[[9]]]
    admit(schedule, job("b", [2, 2, 2, 9, 5]))
    assert read_in_all(schedule) == [[[2, 2, 2], [9]]]


def test_slot_of_a_released_session_goes_first_and_is_no_eviction():
    schedule = schedule_of(2, 16)
    admit(schedule, job("a", [1, 1], max_tokens=1), job("b", [2, 2], max_tokens=1))
    read_in_all(schedule)
    step(schedule, 9)
    schedule.release("b")
    schedule.release("nobody")
    admit(schedule, job("c", [3, 3], max_tokens=1))
    read_in_all(schedule)
    step(schedule, 9)
    assert schedule.rows.evictions == 0
    admit(schedule, job("a", [1, 1, 9, 5]))
    assert read_in_all(schedule) == [[[9]]]


def test_new_owner_of_a_slot_uses_what_was_read_in_there_and_nothing_that_was_decoded():
    """Decoding fed 3 and 9; a context that begins alike shares 1 2 alone, which reading in would give to the bit."""
    schedule = schedule_of(1, 16)
    admit(schedule, job("a", [1, 2, 3], max_tokens=3))
    read_in_all(schedule)
    step(schedule, 4), step(schedule, 9)
    schedule.release("a")
    admit(schedule, job("b", [1, 2, 3, 4, 9, 5]))
    assert read_in_all(schedule) == [[[3, 4, 9]]]


def test_prompt_of_a_group_is_read_in_once():
    """Seven tokens are three rows for the first member; the others copy them, and one that wants more goes on."""
    schedule = schedule_of(4, 16, rows=4)
    admit(schedule, *(job(name, [1, 2, 3, 4, 5, 6, 7, 8]) for name in "abc"), job("d", [1, 2, 3, 4, 5, 6, 7, 8, 9, 9]))
    assert read_in_all(schedule) == [[[1, 2, 3], [4, 5, 6], [7]], [[8, 9]]]
    assert schedule.take_moves() == [Copy(0, 1), Copy(0, 2), Copy(0, 3)]
    assert schedule.shared_tokens == 3 * 7
    assert schedule.decode().lengths_N.tolist() == [1, 1, 1, 1]


def test_one_that_waited_for_a_prompt_reads_it_in_itself_once_nobody_else_does():
    """The first member is given up after its first step: what it has read in by then is copied, the rest is read in."""
    schedule = schedule_of(2, 16, rows=1)
    first, second = job("a", [1, 2, 3, 4, 5, 6, 7, 8]), job("b", [1, 2, 3, 4, 5, 6, 7, 8])
    admit(schedule, first, second)
    schedule.commit_read_in(schedule.read_in())
    schedule.cancel(first)
    assert read_in_all(schedule) == [[[4, 5, 6]], [[7]]]
    assert schedule.take_moves() == [Copy(0, 1)]


def test_copy_that_saves_no_step_is_not_made():
    schedule = schedule_of(2, 16)
    admit(schedule, job("a", [1, 2, 3, 4], max_tokens=1))
    read_in_all(schedule)
    admit(schedule, job("b", [1, 8, 8, 4]))
    assert read_in_all(schedule) == [[[1, 8, 8]]]
    assert schedule.take_moves() == []


def test_what_a_session_decoded_is_not_given_up_for_a_copy_of_what_another_read_in():
    """Both would save a step; the copy would make what is sampled next depend, in the last bits, on who else was here."""
    schedule = schedule_of(2, 16, chunk=2)
    admit(schedule, job("a", [1, 1, 1, 1]))
    read_in_all(schedule)
    admit(schedule, job("b", [1], max_tokens=1))
    schedule.abort("a")
    step(schedule, 1)
    admit(schedule, job("b", [1, 1, 1, 1]))
    assert read_in_all(schedule) == [[[1, 1]]]
    assert schedule.take_moves() == []


def test_one_that_others_copy_from_keeps_its_place_before_those_that_came_later():
    """Else a stream of newcomers that share its beginning would keep it from ever being read in to the end."""
    schedule = schedule_of(3, 16, rows=1)
    admit(schedule, job("first", [1, 1, 1, 2, 2, 2, 2, 2]))
    schedule.commit_read_in(schedule.read_in())
    admit(schedule, job("a", [1, 1, 1, 3, 3, 3, 3, 3]), job("b", [1, 1, 1, 4, 4, 4, 4, 4]))
    assert read_in_all(schedule) == [[[2, 2, 2]], [[2]], [[3, 3, 3]], [[3]], [[4, 4, 4]], [[4]]]
    assert schedule.take_moves() == [Copy(0, 1), Copy(0, 2)]


def test_requests_of_one_session_are_served_one_after_another():
    schedule = schedule_of(2, 16)
    one, other = job("a", [1], max_tokens=1), job("a", [1, 4, 5], max_tokens=1)
    admit(schedule, one, other)
    assert schedule.num_busy == 1
    assert [ended for ended, _ in step(schedule, 4)] == [one]
    schedule.admit()
    read_in_all(schedule)
    [(ended, sample)] = step(schedule, 4)
    assert (ended, sample.num_cached) == (other, 1)


def test_idle_session_gives_its_slot_to_another_and_keeps_its_cache_on_the_shelf():
    schedule = schedule_of(1, 16, kept=1)
    admit(schedule, job("a", [1, 2, 3], max_tokens=1))
    read_in_all(schedule)
    step(schedule, 4)
    admit(schedule, job("b", [5, 6, 7], max_tokens=1))
    assert schedule.take_moves() == [Exchange(0, 1)]
    read_in_all(schedule)
    step(schedule, 4)
    admit(schedule, job("a", [1, 2, 3, 4, 5], max_tokens=1))
    assert schedule.take_moves() == [Exchange(0, 1)]
    assert read_in_all(schedule) == [[[4]]]
    assert step(schedule, 4)[0][1].num_cached == 3
    admit(schedule, job("c", [8, 8, 8], max_tokens=1))
    assert schedule.rows.evictions == 1
    read_in_all(schedule)
    step(schedule, 4)
    admit(schedule, job("a", [1, 2, 3, 4, 5, 4, 6]))
    assert read_in_all(schedule) == [[[4]]]


def test_where_nothing_is_evicted_new_sessions_wait_and_those_that_began_pass_them():
    schedule = schedule_of(1, 16, kept=1, eviction="never")
    for name in "ab":
        admit(schedule, job(name, [1, 2], max_tokens=1))
        read_in_all(schedule)
        step(schedule, 4)
    waiting, again = job("c", [1, 2], max_tokens=1), job("a", [1, 2, 4, 5], max_tokens=1)
    admit(schedule, waiting, again)
    read_in_all(schedule)
    assert [ended for ended, _ in step(schedule, 4)] == [again]
    schedule.admit()
    assert not schedule.num_busy
    schedule.release("b")
    schedule.admit()
    assert list(schedule.waiting) == []
    assert schedule.rows.evictions == 0


def test_new_weights_that_wait_for_episodes_hold_back_sessions_that_are_new():
    schedule = schedule_of(2, 16)
    admit(schedule, job("a", [1], max_tokens=1))
    step(schedule, 4)
    schedule.hold_new_sessions = True
    admit(schedule, job("b", [1]), job("a", [1, 4, 5]))
    assert [one.request.session for one in schedule.waiting] == ["b"]
    schedule.release("a")
    assert schedule.num_live == 1
    schedule.abort("a")
    assert schedule.num_live == 0


def test_abort_gives_what_was_made_so_far_at_every_stage():
    """S90: still waiting, being read in, and after two tokens."""
    schedule = schedule_of(2, 16)
    admit(schedule, job("decoding", [1]), job("reading", [1, 2, 3, 4, 5, 6, 7]), job("waiting", [1]))
    step(schedule, 4), step(schedule, 5)
    made = {}
    for name in ("waiting", "reading", "decoding"):
        ((ended, sample),) = schedule.abort(name)
        assert ended.request.session == name
        assert sample.stop_reason == "aborted"
        assert len(sample.ids) == len(sample.logprobs) == len(sample.versions)
        made[name] = sample.ids.tolist()
    assert made == {"waiting": [], "reading": [], "decoding": [4, 5]}
    assert schedule.abort("decoding") == []
    assert not schedule.num_busy
    assert not schedule.waiting


def test_cancel_frees_the_slot_or_the_place_in_the_queue():
    schedule = schedule_of(1, 16)
    running, waiting, last = job("a", [1]), job("b", [1]), job("c", [1], max_tokens=1)
    admit(schedule, running, waiting, last)
    schedule.cancel(waiting)
    schedule.cancel(running)
    schedule.cancel(running)
    schedule.admit()
    assert [ended for ended, _ in step(schedule, 4)] == [last]


def test_session_released_too_early_leaves_with_its_last_request():
    """Running and waiting ones end undisturbed and hold their place until then; the name is then a new session's."""
    schedule = schedule_of(1, 16, eviction="never")
    running, waiting = job("a", [1], max_tokens=1), job("a", [1, 4, 5], max_tokens=1)
    admit(schedule, running, waiting)
    schedule.release("a"), schedule.release("a")
    admit(schedule, job("new", [1], max_tokens=1), job("a", [1], max_tokens=1))
    order = []
    for live in (1, 1, 1):
        assert schedule.num_live == live
        read_in_all(schedule)
        order += [(ended.request.session, sample.num_cached) for ended, sample in step(schedule, 4)]
        if order[-1][0] == "new":
            schedule.release("new")
        schedule.admit()
    assert order == [("a", 0), ("a", 1), ("new", 0)]
    assert schedule.num_busy == 1
    assert schedule.rows.evictions == 0


def test_new_weights_make_running_requests_read_in_what_they_sampled_too():
    """S82, S11."""
    schedule = schedule_of(2, 16)
    admit(schedule, job("a", [1, 2]), job("b", [5], max_tokens=1))
    read_in_all(schedule)
    step(schedule, 4)
    schedule.rows.forget()
    assert read_in_all(schedule) == [[[1, 2]]]
    assert schedule.decode().ids_N.tolist()[0] == 4
    admit(schedule, job("b", [5, 4, 6]))
    assert read_in_all(schedule) == [[[5, 4]]]


@pytest.mark.parametrize("logprob", [np.nan, -np.inf])
def test_logprob_that_is_no_number_ends_the_request_with_a_reason(logprob):
    """S88."""
    schedule = schedule_of(1, 16)
    admit(schedule, job("a", [1, 2]))
    read_in_all(schedule)
    [(_, outcome)] = step(schedule, 4, logprob=logprob, version=3)
    assert isinstance(outcome, FloatingPointError)
    assert "token 4 at position 2 of session 'a' in the engine, weights version 3" in str(outcome)
    assert schedule.num_busy == 0
