"""Goal: a node whose metadata was adopted can't go on alone, not even after a loss of power.
Method: the store that adopts is left out; what is asked of the disk is taken down in order.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker import adopt as module
from ottla.broker.adopt import Adoption, adopt
from ottla.metadata.bootstrap import decide_cluster_id
from ottla.metadata.configs.zookeeper import ZooKeeperSettings
from ottla.runtime.embedded_store import ADOPTED_FILE_NAME, FILE_NAME, EmbeddedStore
from ottla.runtime.posix_files import PosixFiles
from tests.unit.metadata.builders import CLUSTER_ID


def test_the_new_name_of_the_metadata_is_on_the_disk_before_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(str(tmp_path))
    store.commit(decide_cluster_id(None, None, CLUSTER_ID))
    store.close()
    adoption = Adoption(CLUSTER_ID, 1, 0)
    monkeypatch.setattr(module, "_write", lambda present, settings: adoption)
    synced: list[bool] = []
    sync_dir = PosixFiles.sync_dir

    def noted(files: PosixFiles, path: str) -> None:
        if Path(path) == tmp_path:
            synced.append((tmp_path / ADOPTED_FILE_NAME).exists())
        sync_dir(files, path)

    monkeypatch.setattr(PosixFiles, "sync_dir", noted)
    assert adopt(str(tmp_path), ZooKeeperSettings("127.0.0.1:1", "", 1_000, 1_000)) == adoption
    assert not (tmp_path / FILE_NAME).exists()
    assert synced[-1:] == [True]
