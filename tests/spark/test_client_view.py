"""What the driver asks a broker for, and what the broker then does."""

from __future__ import annotations

from ottla.spark.client_view import ClientView
from ottla.spark.cluster_view import Committed
from ottla.testing import Broker
from tests.spark.topics import Topics


def test_a_deleted_group_is_gone(topics: Topics, broker: Broker) -> None:
    topic = topics.create("in")
    view = ClientView({"bootstrap.servers": broker.bootstrap})
    try:
        view.commit("to-be-deleted", {(topic, 0): Committed(0, "")})
        assert view.delete_group("to-be-deleted")
        assert not view.delete_group("to-be-deleted")
        assert view.committed("to-be-deleted", [(topic, 0)]) == {}
    finally:
        view.close()
