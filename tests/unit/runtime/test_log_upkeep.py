"""Goal: what has expired goes in an order that no crash can turn round: first the log start is on
the disk, then the segments below it go.
Method: the keepers of a broker's logs over files in memory, and a pool whose work the test does.
"""

from __future__ import annotations

from ottla.log.checkpoints import LOG_START_OFFSETS, read_checkpoint
from tests.chaos.crash_world import KEY
from tests.unit.runtime.test_replica_mover import Disks, Node


def checkpointed(node: Node, log_dir: str = "/one") -> int | None:
    return read_checkpoint(node.files, log_dir, LOG_START_OFFSETS).get(KEY)


def log_names(node: Node, log_dir: str = "/one") -> list[int]:
    names = node.files.list_dir(f"{log_dir}/crash-0")
    return [int(name[:20]) for name in names if name.endswith(".log")]


def a_node(files: Disks | None = None) -> Node:
    node = Node(files)
    node.append(20)
    assert len(log_names(node)) > 2
    return node


def work(node: Node) -> None:
    while node.pool.jobs:
        node.pool.work()


def test_the_log_start_is_on_the_disk_before_a_segment_goes() -> None:
    node = a_node()
    names = log_names(node)
    node.upkeep.apply_retention()
    start = node.log.log_start_offset
    assert start > 0
    assert (checkpointed(node), log_names(node)) == (None, names)
    work(node)
    assert (checkpointed(node), log_names(node)[0]) == (start, start)


def test_the_checkpoint_keeps_a_start_where_a_segment_begins() -> None:
    node = a_node()
    node.upkeep.apply_retention()
    work(node)
    node.append(1)
    node.upkeep.checkpoint_log_starts()
    work(node)
    assert checkpointed(node) == node.log.log_start_offset == node.log.first_segment_offset


def test_nothing_goes_if_the_disk_does_not_take_the_log_start() -> None:
    files = Disks()
    node = a_node(files)
    names = log_names(node)
    node.upkeep.apply_retention()
    files.refused = f"/one/{LOG_START_OFFSETS}"
    work(node)
    assert node.partition.log is None, "the log dir is offline"
    assert log_names(node) == names


def test_one_that_has_moved_meanwhile_waits_for_the_next_time() -> None:
    node = a_node()
    names = log_names(node)
    node.move("/two")
    while node.partition.log_dir == "/one":
        node.live_on(1)
    held = [(node.partition, node.log, 10**6)]
    saved = node.upkeep.save_log_starts("/one")
    work(node)
    node.upkeep._delete_expired("/one", held, saved)
    assert log_names(node, "/two") == names


def test_a_log_that_is_cut_below_its_start_is_saved_with_both_its_ends() -> None:
    node = a_node()
    node.log.advance_log_start(15)
    node.upkeep.checkpoint_log_starts()
    work(node)
    assert checkpointed(node) == 15
    node.log.truncate_to(8)
    saved = node.upkeep.save_both_ends("/one")
    work(node)
    assert saved.done
    assert checkpointed(node) == node.log.log_start_offset == 8
