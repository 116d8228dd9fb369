"""Goal: a prepared transaction stays as it is until somebody who knows its id and epoch ends it.
Method: a shard without a broker (`transaction_world`), KIP-939 step by step, and our own prepare.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ProtocolError
from ottla.coordinator.shard import Fields
from ottla.coordinator.transaction_asks import EndAsked, InitAsked, TransactionConfig
from ottla.coordinator.transaction_records import NO_TIMEOUT
from tests.unit.coordinator.transaction_world import TransactionWorld

T0, T1 = ("t", 0), ("t", 1)
OLD, NEW = 0, 2
DAY_MS = 86_400_000


@pytest.fixture
def world() -> TransactionWorld:
    """Two-phase commit is not allowed, as a broker comes."""
    return TransactionWorld()


@pytest.fixture
def allowed() -> TransactionWorld:
    return TransactionWorld(TransactionConfig(two_phase_commit=True))


def init(world: TransactionWorld, **asked: Any) -> Fields:
    return world.init_producer_id(
        InitAsked(**{"transactional_id": "x", "timeout_ms": 60_000, **asked})
    ).result()


def prepare(world: TransactionWorld, owner: tuple[int, int]) -> Fields:
    return init(
        world,
        producer_id=owner[0],
        producer_epoch=owner[1],
        enable_2pc=True,
        keep_prepared=True,
    )


def recover(world: TransactionWorld, *, enable_2pc: bool = True) -> Fields:
    """What a producer of KIP-939 asks when it starts again."""
    return init(world, enable_2pc=enable_2pc, keep_prepared=True)


def open_transaction(world: TransactionWorld, client: int = NEW, **asked: Any) -> tuple[int, int]:
    owner = client_of(init(world, **asked))
    assert add(world, owner, client=client) == 0
    return owner


def add(world: TransactionWorld, owner: tuple[int, int], client: int = NEW) -> int:
    return world.add_partitions("x", *owner, [T0, T1], client).result()


def verify(world: TransactionWorld, owner: tuple[int, int]) -> int:
    return world.verify_partitions("x", *owner, [T0]).result()[T0]


def end(
    world: TransactionWorld,
    owner: tuple[int, int],
    committed: bool = True,
    client: int = NEW,
    forgets: bool = False,
) -> Fields:
    return world.end_transaction(EndAsked("x", *owner, committed, client, forgets)).result()


def client_of(fields: Fields) -> tuple[int, int]:
    assert fields["error_code"] == 0
    return fields["producer_id"], fields["producer_epoch"]


def kept_of(fields: Fields) -> tuple[int, int]:
    assert fields["error_code"] == 0
    return fields["ongoing_txn_producer_id"], fields["ongoing_txn_producer_epoch"]


def code(fields: Fields) -> int:
    return int(fields["error_code"])


def wait_a_month(world: TransactionWorld) -> None:
    world.clock.now_ms += 30 * DAY_MS
    for transactional_id in world.shard.timed_out():
        world.settle(world.shard.abort_timed_out(transactional_id))


# -- our own prepare --------------------------------------------------------------------------


def test_prepared_by_its_own_producer(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    prepared = prepare(world, writer)
    assert kept_of(prepared) == writer == (1000, 0)
    assert client_of(prepared) == (1000, 1)
    assert world.state("x") == "Ongoing"
    assert world.held("x").timeout_ms == NO_TIMEOUT
    assert world.revoked == [([T0, T1], 1000)]


def test_what_is_prepared_takes_no_more_writes(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    client = client_of(prepare(world, writer))
    assert (add(world, writer), verify(world, writer)) == (90, 90)
    assert (add(world, client), verify(world, client)) == (48, 48)
    assert (add(world, (7, 0)), verify(world, (7, 0))) == (90, 90)
    assert code(end(world, writer)) == 90
    assert world.held("x").partitions == {T0, T1}


def test_until_it_is_prepared_it_runs_out_of_time(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    wait_a_month(world)
    assert world.state("x") == "CompleteAbort"
    assert code(prepare(world, writer)) == 90


def test_prepared_it_does_not(world: TransactionWorld) -> None:
    client = client_of(prepare(world, open_transaction(world)))
    for _ in range(2):
        wait_a_month(world)
        assert world.settle(world.shard.sweep()) is False
        assert world.state("x") == "Ongoing" and not world.markers
        world.reload()
    assert code(end(world, client)) == 0
    assert world.state("x") == "CompleteCommit"


@pytest.mark.parametrize("client_version", [OLD, NEW])
@pytest.mark.parametrize("committed", [True, False])
def test_ended_by_whoever_knows_it(
    world: TransactionWorld, committed: bool, client_version: int
) -> None:
    client = client_of(prepare(world, open_transaction(world, client_version)))
    world.reload()
    ended = client_of(end(world, client, committed, client_version))
    bump = 1 if client_version == NEW else 0
    assert ended == (1000, 1 + bump)
    # The markers are above what any writer had, and one for each partition.
    assert world.markers == [("t", i, 1000, 1 + bump, committed) for i in (0, 1)]
    for _ in range(2):
        assert client_of(end(world, client, committed, client_version)) == ended
        assert code(end(world, client, not committed, client_version)) == 48
        world.reload()
    assert len(world.markers) == 2


def test_told_again_while_its_markers_are_under_way(world: TransactionWorld) -> None:
    client = client_of(prepare(world, open_transaction(world)))
    world.holds_markers = True
    assert code(end(world, client)) == 0
    for _ in range(2):
        assert code(end(world, client)) == 51
        assert code(end(world, client, False)) == 48
        assert code(prepare(world, client)) == 51
        world.reload()
    world.write_held()
    assert code(end(world, client)) == 0


def test_prepared_again_it_is_answered_again(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    first = prepare(world, writer)
    count = len(world.records)
    for _ in range(2):
        assert prepare(world, writer) == first
        assert prepare(world, client_of(first)) == first
        world.reload()
    assert len(world.records) == count
    # Partitions are told each time: the answer of the last time may be lost because of one.
    assert world.revoked == 5 * [([T0, T1], 1000)]


def test_the_answer_waits_for_the_partitions(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    world.revoke_code = 15
    with pytest.raises(ProtocolError, match="15"):
        prepare(world, writer)
    world.revoke_code = 0
    assert client_of(prepare(world, writer)) == (1000, 1)


def test_what_is_not_kept_is_not_prepared(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    world.append_code = 15
    with pytest.raises(ProtocolError):
        prepare(world, writer)
    assert world.revoked == []
    world.append_code = 0
    assert add(world, writer) == 0


def test_who_may_not_prepare(world: TransactionWorld) -> None:
    assert code(prepare(world, (1000, 0))) == 49
    writer = open_transaction(world)
    assert code(prepare(world, (1000, 1))) == 90
    assert code(prepare(world, (999, 0))) == 90
    assert code(recover(world)) == 53
    assert code(init(world, enable_2pc=True)) == 53
    assert code(init(world, enable_2pc=True, producer_id=writer[0], producer_epoch=0)) == 53
    assert world.held("x").timeout_ms == 60_000 and not world.revoked
    assert code(prepare(world, writer)) == 0


def test_with_nothing_open_there_is_nothing_to_prepare(world: TransactionWorld) -> None:
    owner = client_of(init(world))
    answer = prepare(world, owner)
    assert client_of(answer) == (1000, 1)
    assert "ongoing_txn_producer_id" not in answer
    assert world.held("x").timeout_ms == 60_000
    assert code(end(world, (1000, 1))) == 48


@pytest.mark.parametrize("is_allowed", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_the_next_transaction_has_its_time_out_again(is_allowed: bool, committed: bool) -> None:
    world = TransactionWorld(TransactionConfig(two_phase_commit=is_allowed))
    client = client_of(prepare(world, open_transaction(world)))
    assert world.held("x").timeout_ms == NO_TIMEOUT
    world.reload()
    following = client_of(end(world, client, committed))
    assert world.held("x").timeout_ms == 60_000
    assert add(world, following) == 0
    world.reload()
    wait_a_month(world)
    assert world.state("x") == "CompleteAbort"


def test_two_phase_commit_that_is_allowed_no_more_leaves_a_time_out(
    allowed: TransactionWorld,
) -> None:
    writer = open_transaction(allowed, enable_2pc=True)
    allowed.config = TransactionConfig()
    allowed.reload()
    assert code(end(allowed, writer)) == 0
    assert allowed.held("x").timeout_ms == 900_000


def test_a_producer_that_knows_nothing_of_it_has_to_wait(world: TransactionWorld) -> None:
    """Also the writer's own InitProducerId, if it comes late."""
    client = client_of(prepare(world, open_transaction(world)))
    for _ in range(2):
        assert code(init(world)) == 51
        assert code(init(world, producer_id=1000, producer_epoch=0)) == 51
        world.reload()
    assert world.markers == []
    assert code(end(world, client)) == 0
    assert client_of(init(world)) == (1000, 3)


# -- KIP-939 ----------------------------------------------------------------------------------


def test_two_phase_commit_has_no_time_out(allowed: TransactionWorld) -> None:
    open_transaction(allowed, enable_2pc=True, timeout_ms=-1)
    assert allowed.held("x").timeout_ms == NO_TIMEOUT
    wait_a_month(allowed)
    assert allowed.state("x") == "Ongoing"


def test_started_again_it_goes_on_under_another_epoch(allowed: TransactionWorld) -> None:
    writer = open_transaction(allowed, enable_2pc=True)
    for epoch in (1, 2, 3):
        answer = recover(allowed)
        assert (client_of(answer), kept_of(answer)) == ((1000, epoch), writer)
        allowed.reload()
    # Whoever was told another epoch before has been fenced.
    assert code(end(allowed, (1000, 2))) == 90
    assert code(prepare(allowed, (1000, 0))) == 90
    assert client_of(end(allowed, (1000, 3), False)) == (1000, 4)
    assert allowed.markers == [("t", i, 1000, 4, False) for i in (0, 1)]
    # The next transactions have no time-out either.
    assert allowed.held("x").timeout_ms == NO_TIMEOUT


def test_started_again_with_nothing_open(allowed: TransactionWorld) -> None:
    assert client_of(recover(allowed)) == (1000, 0)
    assert client_of(recover(allowed)) == (1000, 1)
    answer = recover(allowed)
    assert "ongoing_txn_producer_id" not in answer
    # After a commit whose answer was lost, it may go on as if there had been none.
    assert add(allowed, (1000, 2)) == 0
    assert code(end(allowed, (1000, 2))) == 0
    assert client_of(recover(allowed)) == (1000, 4)


def test_started_again_without_keeping_it_is_aborted(allowed: TransactionWorld) -> None:
    for is_recovered in (False, True):
        open_transaction(allowed, enable_2pc=True)
        if is_recovered:
            assert code(recover(allowed)) == 0
        assert code(init(allowed, enable_2pc=True)) == 51
        assert allowed.state("x") == "CompleteAbort"


@pytest.mark.parametrize("is_prepared_too", [False, True])
def test_kept_and_left_alone_any_producer_aborts_it(
    allowed: TransactionWorld, is_prepared_too: bool
) -> None:
    """As a stock client does that is started again without two-phase commit, or fenceProducers."""
    open_transaction(allowed, enable_2pc=True)
    client = client_of(recover(allowed))
    if is_prepared_too:  # what has no time-out has none to lose: nothing tells it from the others
        assert client_of(prepare(allowed, client)) == client
    allowed.reload()
    assert code(init(allowed)) == 51
    assert allowed.state("x") == "CompleteAbort"
    assert code(end(allowed, client)) == 90
    assert client_of(init(allowed)) == (1000, 3)
    assert allowed.held("x").timeout_ms == 60_000


def test_kept_with_a_time_out_it_can_be_prepared_by_who_goes_on(world: TransactionWorld) -> None:
    open_transaction(world)
    client = client_of(recover(world, enable_2pc=False))
    assert client_of(prepare(world, client)) == client
    wait_a_month(world)
    assert code(init(world)) == 51
    assert client_of(end(world, client)) == (1000, 2)
    assert world.held("x").timeout_ms == 60_000


def test_kept_without_two_phase_commit_it_still_runs_out_of_time(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    answer = recover(world, enable_2pc=False)
    assert (client_of(answer), kept_of(answer)) == ((1000, 1), writer)
    assert world.held("x").timeout_ms == 60_000
    wait_a_month(world)
    assert world.state("x") == "CompleteAbort"
    assert world.markers == [("t", i, 1000, 2, False) for i in (0, 1)]
    assert code(end(world, (1000, 1))) == 48  # the opposite is decided
    assert client_of(end(world, (1000, 1), committed=False)) == (1000, 2)


# -- the last epoch ---------------------------------------------------------------------------


def at_last_epoch(world: TransactionWorld) -> tuple[int, int]:
    init(world)
    last = world.held("x")._replace(producer_epoch=32_766)
    world.shard.transactions["x"] = last
    assert add(world, (1000, 32_766)) == 0
    return 1000, 32_766


@pytest.mark.parametrize("client_version", [OLD, NEW])
def test_prepared_in_its_last_epoch(world: TransactionWorld, client_version: int) -> None:
    writer = at_last_epoch(world)
    prepared = prepare(world, writer)
    assert (client_of(prepared), kept_of(prepared)) == ((1001, 0), writer)
    assert prepare(world, writer) == prepared
    world.reload()
    assert prepare(world, writer) == prepared
    assert code(end(world, writer, client=client_version)) == 49
    world.holds_markers = True
    ended = client_of(end(world, (1001, 0), client=client_version))
    bump = 1 if client_version == NEW else 0
    assert ended == (1001, bump)
    world.reload()
    assert code(end(world, (1001, 0), client=client_version)) == 51
    assert code(end(world, (1001, 0), False, client=client_version)) == 48
    world.write_held()
    assert world.markers == [("t", i, 1000, 32_767, True) for i in (0, 1)]
    world.reload()
    assert client_of(end(world, (1001, 0), client=client_version)) == ended
    assert add(world, ended) == 0


def test_fenced_after_it_was_prepared_in_its_last_epoch(allowed: TransactionWorld) -> None:
    prepare(allowed, at_last_epoch(allowed))
    assert code(init(allowed, enable_2pc=True)) == 51
    assert allowed.markers == [("t", i, 1000, 32_767, False) for i in (0, 1)]
    assert code(end(allowed, (1001, 0))) == 90
    assert client_of(init(allowed, enable_2pc=True)) == (1001, 2)


def test_started_again_until_the_epochs_are_used_up(allowed: TransactionWorld) -> None:
    writer = open_transaction(allowed, enable_2pc=True)
    recover(allowed)
    allowed.shard.transactions["x"] = allowed.held("x")._replace(next_producer_epoch=32_766)
    assert client_of(recover(allowed)) == (1001, 0)
    allowed.shard.transactions["x"] = allowed.held("x")._replace(next_producer_epoch=32_766)
    assert kept_of(recover(allowed)) == writer
    assert allowed.held("x").client() == (1002, 0)
    allowed.shard.transactions["x"] = allowed.held("x")._replace(next_producer_epoch=32_766)
    assert client_of(end(allowed, (1002, 32_766))) == (1003, 0)
    assert allowed.markers == [("t", i, 1000, 32_767, True) for i in (0, 1)]
    allowed.reload()
    assert client_of(end(allowed, (1002, 32_766))) == (1003, 0)
    assert code(end(allowed, (1002, 32_766), False)) == 48


def test_no_epoch_is_above_the_highest(world: TransactionWorld) -> None:
    """Nobody is told 32767, but anybody may say it. What was written so, no marker could end."""
    at_last_epoch(world)
    wait_a_month(world)
    assert world.held("x").producer_epoch == 32_767
    assert add(world, (1000, 32_767)) == 90
    assert verify(world, (1000, 32_767)) == 90
    assert world.state("x") == "CompleteAbort"
    assert client_of(end(world, (1000, 32_767), False)) == (1001, 0)
    world.reload()
    assert world.state("x") == "CompleteAbort"


# -- ids that are used once -------------------------------------------------------------------


@pytest.mark.parametrize("client_version", [OLD, NEW])
@pytest.mark.parametrize("committed", [True, False])
def test_forgotten_when_its_markers_are_there(
    world: TransactionWorld, committed: bool, client_version: int
) -> None:
    writer = open_transaction(world, client_version)
    world.holds_markers = True
    assert code(end(world, writer, committed, client_version, forgets=True)) == 0
    for _ in range(2):
        assert code(end(world, writer, committed, client_version, forgets=True)) == 51
        assert code(end(world, writer, not committed, client_version)) == 48
        world.reload()
    world.write_held()
    # No producer ever has this epoch, so partitions know that it was the last.
    assert world.markers == [("t", i, 1000, 32_767, committed) for i in (0, 1)]
    assert not world.shard.transactions and world.records[-1].value is None
    assert code(end(world, writer, committed, client_version)) == 49
    assert (add(world, writer), verify(world, writer)) == (49, 49)
    assert code(prepare(world, writer)) == 49


def test_prepared_and_forgotten(world: TransactionWorld) -> None:
    client = client_of(prepare(world, open_transaction(world)))
    assert code(end(world, client, forgets=True)) == 0
    assert not world.shard.transactions
    assert world.markers == [("t", i, 1000, 32_767, True) for i in (0, 1)]


def test_one_that_is_over_can_be_forgotten_too(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    following = client_of(end(world, writer))
    assert code(end(world, writer, False, forgets=True)) == 48
    assert "x" in world.shard.transactions
    assert code(end(world, writer, forgets=True)) == 0
    assert "x" not in world.shard.transactions
    assert code(end(world, following, False)) == 49


def test_one_that_ran_out_of_time_or_never_began_can_be_forgotten(
    world: TransactionWorld,
) -> None:
    open_transaction(world)
    wait_a_month(world)
    held = world.held("x")
    assert code(end(world, held.client(), False, forgets=True)) == 0
    assert "x" not in world.shard.transactions
    owner = client_of(init(world))
    assert code(end(world, owner, forgets=True)) == 48
    assert code(end(world, owner, False, forgets=True)) == 0
    assert "x" not in world.shard.transactions


def test_a_forgotten_id_can_begin_anew(world: TransactionWorld) -> None:
    writer = open_transaction(world)
    end(world, writer, forgets=True)
    assert client_of(init(world)) == (1001, 0)
    assert add(world, writer) == 49
