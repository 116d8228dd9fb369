"""Goal: the states of a transaction, for both kinds of client, and what each wrong step is told.
Method: a shard without a broker (`transaction_world`); the codes are those of Kafka 4.3.1, asked
with the same steps (see tests/compat/test_transactions_wire.py).
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ProtocolError
from ottla.coordinator.shard import Fields
from ottla.coordinator.transaction_asks import EndAsked, InitAsked, TransactionConfig
from ottla.coordinator.transaction_records import ONGOING
from tests.unit.coordinator.transaction_world import TransactionWorld

T0, T1 = ("t", 0), ("t", 1)
OLD, NEW = 0, 2


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def init(
    world: TransactionWorld, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000
) -> Fields:
    return world.init_producer_id(InitAsked("x", timeout_ms, producer_id, epoch)).result()


def begun(fields: Fields) -> tuple[int, int]:
    assert fields["error_code"] == 0
    return fields["producer_id"], fields["producer_epoch"]


def add(
    world: TransactionWorld, owner: tuple[int, int], *places: tuple[str, int], client: int = OLD
) -> int:
    return world.add_partitions("x", *owner, list(places or (T0,)), client).result()


def end(
    world: TransactionWorld, owner: tuple[int, int], committed: bool = True, client: int = OLD
) -> Fields:
    return world.end_transaction(EndAsked("x", *owner, committed, client)).result()


def code(fields: Fields) -> int:
    return int(fields["error_code"])


# -- InitProducerId ---------------------------------------------------------------------------


def test_each_start_has_the_next_epoch_of_the_same_id(world: TransactionWorld) -> None:
    assert begun(init(world)) == (1000, 0)
    assert begun(init(world)) == (1000, 1)
    world.reload()
    assert begun(init(world)) == (1000, 2)


def test_a_new_id_is_taken_only_when_one_is_needed(world: TransactionWorld) -> None:
    init(world)
    init(world)
    assert next(world.fresh_ids) == 1001


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_out_of_bounds(world: TransactionWorld, timeout_ms: int) -> None:
    assert code(init(world, timeout_ms=timeout_ms)) == 50
    assert not world.records


def test_over_an_open_transaction_it_is_aborted_first(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner)
    assert code(init(world)) == 51
    assert world.markers == [("t", 0, 1000, 1, False)]
    # The epoch of the abort is nobody's; the one after it is given out.
    assert begun(init(world)) == (1000, 2)


def test_while_markers_are_under_way_it_has_to_wait(world: TransactionWorld) -> None:
    world.holds_markers = True
    owner = begun(init(world))
    add(world, owner)
    end(world, owner)
    assert code(init(world)) == 51
    world.write_held()
    assert begun(init(world)) == (1000, 1)


def test_a_producer_that_names_what_it_has(world: TransactionWorld) -> None:
    """KIP-360: it bumps its own epoch, once, however often it has to ask."""
    owner = begun(init(world))
    assert begun(init(world, *owner)) == (1000, 1)
    assert begun(init(world, *owner)) == (1000, 1)
    assert begun(init(world, 1000, 1)) == (1000, 2)
    assert code(init(world, *owner)) == 90
    assert code(init(world, 999, 0)) == 90
    assert begun(init(world)) == (1000, 3)
    assert code(init(world, 1000, 2)) == 90


def test_when_the_epochs_are_used_up_there_is_another_id(world: TransactionWorld) -> None:
    init(world)
    at_epoch(world, 32766)
    assert begun(init(world)) == (1001, 0)
    assert world.held("x").previous_producer_id == 1000
    assert begun(init(world)) == (1001, 1)


def test_the_last_epoch_named_and_named_again(world: TransactionWorld) -> None:
    init(world)
    at_epoch(world, 32766)
    assert begun(init(world, 1000, 32766)) == (1001, 0)
    assert begun(init(world, 1000, 32766)) == (1001, 0)
    assert code(init(world, 1000, 32765)) == 90


def test_a_producer_that_aborts_by_naming_itself_goes_on(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner, client=NEW)
    assert code(init(world, *owner)) == 51
    assert world.markers == [("t", 0, 1000, 1, False)]
    assert begun(init(world, *owner)) == (1000, 1)
    assert begun(init(world, *owner)) == (1000, 1)
    assert code(end(world, owner, False, NEW)) == 90
    assert add(world, (1000, 1), client=NEW) == 0


def test_one_that_was_taken_over_does_not(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner)
    assert code(init(world)) == 51
    assert code(init(world, *owner)) == 90
    later = begun(init(world))
    add(world, later)
    assert code(init(world, *owner)) == 90
    assert world.state("x") == "Ongoing", "what is open is not its own"


def test_naming_itself_at_the_last_epoch(world: TransactionWorld) -> None:
    init(world)
    at_epoch(world, 32766)
    add(world, (1000, 32766), client=NEW)
    assert code(init(world, 1000, 32766)) == 51
    assert begun(init(world, 1000, 32766)) == (1001, 0)
    assert begun(init(world, 1000, 32766)) == (1001, 0)


def at_epoch(world: TransactionWorld, epoch: int) -> None:
    world.shard.transactions["x"] = world.held("x")._replace(producer_epoch=epoch)


# -- partitions -------------------------------------------------------------------------------


def test_partitions_are_added_once(world: TransactionWorld) -> None:
    owner = begun(init(world))
    assert add(world, owner, T0) == 0
    count = len(world.records)
    assert add(world, owner, T0) == 0
    assert len(world.records) == count
    world.clock.now_ms += 5
    assert add(world, owner, T0, T1) == 0
    held = world.held("x")
    assert held.partitions == {T0, T1}
    assert held.started_ms == world.clock.now_ms - 5


def test_who_may_not_add(world: TransactionWorld) -> None:
    producer_id, epoch = begun(init(world))
    assert add(world, (producer_id + 1, epoch)) == 49
    assert add(world, (producer_id, epoch + 1)) == 90
    assert world.add_partitions("nobody", producer_id, epoch, [T0], OLD).result() == 49
    world.holds_markers = True
    add(world, (producer_id, epoch))
    end(world, (producer_id, epoch))
    assert add(world, (producer_id, epoch)) == 51


def test_the_next_transaction_begins_with_its_own_partitions(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner, T0)
    end(world, owner)
    world.clock.now_ms += 7
    add(world, owner, T1)
    assert world.held("x").partitions == {T1}
    assert world.held("x").started_ms == world.clock.now_ms


def test_verification(world: TransactionWorld) -> None:
    def verdict(producer_id: int, epoch: int) -> list[int]:
        return list(world.verify_partitions("x", producer_id, epoch, [T0, T1]).result().values())

    producer_id, epoch = begun(init(world))
    assert verdict(producer_id, epoch) == [120, 120]
    add(world, (producer_id, epoch), T0)
    assert verdict(producer_id, epoch) == [0, 120]
    assert verdict(producer_id, epoch + 1) == [90, 90]
    assert verdict(producer_id + 1, epoch) == [49, 49]
    world.holds_markers = True
    end(world, (producer_id, epoch))
    assert verdict(producer_id, epoch) == [51, 51]
    world.write_held()
    assert verdict(producer_id, epoch) == [120, 120]


# -- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [OLD, NEW])
@pytest.mark.parametrize("committed", [True, False])
def test_a_whole_transaction(world: TransactionWorld, committed: bool, client: int) -> None:
    world.holds_markers = True
    owner = begun(init(world))
    add(world, owner, T0, T1, client=client)
    assert world.state("x") == "Ongoing"
    assert begun(end(world, owner, committed, client)) == (1000, 1 if client == NEW else 0)
    assert world.state("x") == ("PrepareCommit" if committed else "PrepareAbort")
    assert not world.markers
    world.write_held()
    assert world.state("x") == ("CompleteCommit" if committed else "CompleteAbort")
    epoch = 1 if client == NEW else 0
    assert world.markers == [("t", 0, 1000, epoch, committed), ("t", 1, 1000, epoch, committed)]


def test_no_marker_before_the_decision_is_kept(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner)
    world.append_code = 15
    with pytest.raises(ProtocolError):
        end(world, owner)
    assert not world.markers and world.state("x") == "Ongoing"
    world.append_code = 0
    assert code(end(world, owner)) == 0
    assert len(world.markers) == 1


def test_ends_of_an_old_client_that_are_refused(world: TransactionWorld) -> None:
    assert code(end(world, (1000, 0))) == 49
    producer_id, epoch = begun(init(world))
    assert [code(end(world, (producer_id, epoch), way)) for way in (True, False)] == [48, 48]
    add(world, (producer_id, epoch))
    assert code(end(world, (producer_id, epoch + 1))) == 90
    assert code(end(world, (producer_id + 1, epoch))) == 49


def test_an_end_of_an_old_client_told_again(world: TransactionWorld) -> None:
    world.holds_markers = True
    owner = begun(init(world))
    add(world, owner)
    end(world, owner)
    assert [code(end(world, owner, way)) for way in (True, False)] == [51, 48]
    world.write_held()
    assert [code(end(world, owner, way)) for way in (True, False)] == [0, 48]
    assert len(world.markers) == 1


def test_an_end_with_a_bump_told_again(world: TransactionWorld) -> None:
    world.holds_markers = True
    owner = begun(init(world))
    add(world, owner, client=NEW)
    end(world, owner, client=NEW)
    assert [code(end(world, owner, way, NEW)) for way in (True, False)] == [51, 48]
    world.write_held()
    assert begun(end(world, owner, True, NEW)) == (1000, 1)
    assert code(end(world, owner, False, NEW)) == 48
    assert len(world.markers) == 1
    # A new coordinator knows it, too.
    world.reload()
    assert begun(end(world, owner, True, NEW)) == (1000, 1)


def test_begun_the_new_way_and_ended_the_old_way(world: TransactionWorld) -> None:
    """The epoch stays, and partitions must not take its marker for one of before."""
    owner = begun(init(world))
    add(world, owner, client=NEW)
    assert code(end(world, owner)) == 0
    assert world.held("x").client_version == OLD
    assert world.markers == [("t", 0, 1000, 0, True)]


def test_a_late_end_changes_nothing_in_the_next_transaction(world: TransactionWorld) -> None:
    first = begun(init(world))
    add(world, first, client=NEW)
    second = begun(end(world, first, client=NEW))
    add(world, second, client=NEW)
    for way in (True, False):
        assert code(end(world, first, way, NEW)) == 90
    assert world.state("x") == "Ongoing"


def test_a_transaction_that_wrote_nothing_may_be_aborted_with_a_bump(
    world: TransactionWorld,
) -> None:
    owner = begun(init(world))
    assert code(end(world, owner, True, NEW)) == 48
    bumped = begun(end(world, owner, False, NEW))
    assert bumped == (1000, 1)
    assert world.state("x") == "CompleteAbort" and not world.markers
    assert code(end(world, bumped, True, NEW)) == 48
    assert begun(end(world, bumped, False, NEW)) == (1000, 2)


def test_the_last_bump_of_an_id_goes_on_with_another(world: TransactionWorld) -> None:
    init(world)
    at_epoch(world, 32766)
    add(world, (1000, 32766), client=NEW)
    world.holds_markers = True
    assert begun(end(world, (1000, 32766), client=NEW)) == (1001, 0)
    # The marker still is of the old id, under an epoch that no client ever had.
    world.write_held()
    assert world.markers == [("t", 0, 1000, 32767, True)]
    assert (world.held("x").producer_id, world.held("x").producer_epoch) == (1001, 0)
    assert begun(end(world, (1000, 32766), client=NEW)) == (1001, 0)
    assert add(world, (1001, 0), client=NEW) == 0


# -- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [OLD, NEW])
def test_out_of_time_it_is_aborted_and_fenced(world: TransactionWorld, client: int) -> None:
    owner = begun(init(world))
    add(world, owner, client=client)
    world.clock.now_ms += 60_000
    assert world.shard.timed_out() == []
    world.clock.now_ms += 1
    assert world.shard.timed_out() == ["x"]
    world.settle(world.shard.abort_timed_out("x"))
    assert world.markers == [("t", 0, 1000, 1, False)]
    assert world.shard.timed_out() == []
    assert code(end(world, owner, True, client)) == (90 if client == OLD else 48)
    assert add(world, owner, client=client) == 90


@pytest.mark.parametrize("jump_ms", [3_600_000, 60_001, 1_000, -1_000, -3_600_000])
def test_the_time_of_day_may_jump_while_it_is_open(world: TransactionWorld, jump_ms: int) -> None:
    owner = begun(init(world))
    add(world, owner)
    world.clock.now_ms += 30_000
    world.clock.wall_ahead_ms = jump_ms
    add(world, owner, T1)
    world.clock.now_ms += 30_000
    assert world.shard.timed_out() == []
    world.clock.now_ms += 1
    assert world.shard.timed_out() == ["x"]


@pytest.mark.parametrize(
    ("jump_ms", "left_ms"), [(0, 30_000), (-3_600_000, 60_000), (3_600_000, 0)]
)
def test_another_coordinator_trusts_the_time_of_day_within_the_time_out(
    world: TransactionWorld, jump_ms: int, left_ms: int
) -> None:
    add(world, begun(init(world)))
    world.clock.now_ms += 30_000
    world.clock.wall_ahead_ms = jump_ms
    world.reload()
    world.clock.now_ms += left_ms
    assert world.shard.timed_out() == []
    world.clock.now_ms += 1
    assert world.shard.timed_out() == ["x"]


def test_the_next_transaction_has_all_of_its_time(world: TransactionWorld) -> None:
    owner = begun(init(world))
    for _ in range(3):
        add(world, owner)
        world.clock.now_ms += 50_000
        assert world.shard.timed_out() == []
        end(world, owner)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_out_of_time_its_producer_aborts_and_goes_on(
    world: TransactionWorld, is_reloaded: bool
) -> None:
    """Nobody else has the id: with an epoch per transaction it learns the one of the time-out."""
    owner = begun(init(world))
    add(world, owner, client=NEW)
    world.holds_markers = True
    world.clock.now_ms += 60_001
    world.settle(world.shard.abort_timed_out("x"))
    assert [code(end(world, owner, way, NEW)) for way in (True, False)] == [48, 51]
    world.write_held()
    if is_reloaded:
        world.reload()
    world.holds_markers = False
    assert begun(end(world, owner, False, NEW)) == (1000, 1)
    assert begun(end(world, owner, False, NEW)) == (1000, 1)
    assert add(world, (1000, 1), client=NEW) == 0
    # From here on the old epoch is of before.
    assert [code(end(world, owner, way, NEW)) for way in (True, False)] == [90, 90]
    assert begun(end(world, (1000, 1), True, NEW)) == (1000, 2)
    assert [code(end(world, owner, way, NEW)) for way in (True, False)] == [90, 90]


def test_out_of_time_its_producer_asks_for_its_next_epoch(world: TransactionWorld) -> None:
    """KIP-360: it is given the one of the time-out, however often it has to ask."""
    owner = begun(init(world))
    add(world, owner)
    world.clock.now_ms += 60_001
    world.settle(world.shard.abort_timed_out("x"))
    assert [code(end(world, owner, way)) for way in (True, False)] == [90, 90]
    assert [begun(init(world, *owner)) for _ in range(2)] == [(1000, 1)] * 2
    assert add(world, (1000, 1)) == 0
    assert code(init(world, *owner)) == 90


def test_out_of_time_and_taken_over_it_is_fenced(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner, client=NEW)
    world.clock.now_ms += 60_001
    world.settle(world.shard.abort_timed_out("x"))
    assert begun(init(world)) == (1000, 2)
    assert [code(end(world, owner, way, NEW)) for way in (True, False)] == [90, 90]
    assert code(init(world, *owner)) == 90


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_out_of_time_at_the_last_epoch_its_producer_aborts_and_goes_on_with_another_id(
    world: TransactionWorld, is_reloaded: bool
) -> None:
    init(world)
    at_epoch(world, 32766)
    last = (1000, 32766)
    add(world, last, client=NEW)
    world.holds_markers = True
    world.clock.now_ms += 60_001
    world.settle(world.shard.abort_timed_out("x"))
    assert [code(end(world, last, way, NEW)) for way in (True, False)] == [48, 51]
    world.write_held()
    assert world.markers == [("t", 0, 1000, 32767, False)]
    if is_reloaded:
        world.reload()
    world.holds_markers = False
    assert [code(end(world, last, way)) for way in (True, False)] == [90, 90]
    assert code(end(world, last, True, NEW)) == 48
    assert begun(end(world, last, False, NEW)) == (1001, 0)
    assert begun(end(world, last, False, NEW)) == (1001, 0)
    assert begun(init(world, *last)) == (1001, 0)
    assert add(world, (1001, 0), client=NEW) == 0
    assert code(end(world, last, False, NEW)) == 49


def test_out_of_time_at_the_last_epoch_anybody_may_begin_anew(world: TransactionWorld) -> None:
    init(world)
    at_epoch(world, 32766)
    add(world, (1000, 32766), client=NEW)
    world.clock.now_ms += 60_001
    world.settle(world.shard.abort_timed_out("x"))
    assert begun(init(world)) == (1001, 0)
    assert code(end(world, (1000, 32766), False, NEW)) == 49


def test_what_ended_meanwhile_is_not_aborted(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner)
    end(world, owner)
    world.clock.now_ms += 60_001
    assert code(world.settle(world.shard.abort_timed_out("x"))) == 48
    assert code(world.settle(world.shard.abort_timed_out("nobody"))) == 48
    assert world.markers == [("t", 0, 1000, 0, True)]


def test_ids_that_nobody_uses_are_forgotten() -> None:
    world = TransactionWorld(TransactionConfig(id_expiration_ms=100))
    for name in ("old", "open", "x"):
        world.init_producer_id(InitAsked(name, 60_000)).result()
    world.add_partitions("open", 1001, 0, [T0], OLD).result()
    world.clock.now_ms += 99
    begun(init(world))
    world.clock.now_ms += 1
    assert world.settle(world.shard.sweep()) is False
    assert set(world.shard.transactions) == {"open", "x"}
    world.reload()
    assert set(world.shard.transactions) == {"open", "x"}
    # Another id from now on: nobody can take it for the old one.
    assert world.init_producer_id(InitAsked("old", 60_000)).result()["producer_id"] == 1003


# -- another coordinator ----------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_is_finished_by_whoever_loads_it(
    world: TransactionWorld, committed: bool
) -> None:
    world.holds_markers = True
    owner = begun(init(world))
    add(world, owner, T0, T1, client=NEW)
    end(world, owner, committed, NEW)
    world.reload()
    (task,) = world.tasks
    assert task.is_repeated and task.committed is committed
    assert task.partitions == {T0, T1} and task.producer_epoch == 1
    world.write_held()
    assert world.state("x") == ("CompleteCommit" if committed else "CompleteAbort")


def test_an_open_transaction_goes_on_under_another_coordinator(world: TransactionWorld) -> None:
    owner = begun(init(world))
    add(world, owner)
    world.reload()
    assert not world.tasks and world.held("x").state == ONGOING
    world.clock.now_ms += 60_001
    assert world.shard.timed_out() == ["x"]
    assert code(end(world, owner)) == 0


def test_markers_of_a_decision_are_begun_once(world: TransactionWorld) -> None:
    world.holds_markers = True
    owner = begun(init(world))
    add(world, owner)
    end(world, owner)
    world.settle(world.shard.resume_decided())
    assert len(world.tasks) == 1


def test_completion_of_another_transaction_changes_nothing(world: TransactionWorld) -> None:
    world.holds_markers = True
    owner = begun(init(world))
    add(world, owner, client=NEW)
    owner = begun(end(world, owner, client=NEW))
    (late,) = world.tasks
    world.write_held()
    add(world, owner, client=NEW)
    world.settle(world.shard.complete(late))
    assert world.state("x") == "Ongoing"
    end(world, owner, client=NEW)
    world.settle(world.shard.complete(late))
    assert world.state("x") == "PrepareCommit"


def test_replay_of_bytes_and_of_facts_is_the_same(world: TransactionWorld) -> None:
    owner = begun(init(world))
    for committed in (True, False, True):
        add(world, owner, T0, client=NEW)
        owner = begun(end(world, owner, committed, NEW))
    live = world.held("x")
    world.reload()
    assert world.held("x") == live._replace(last_epoch=-1)
