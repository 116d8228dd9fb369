"""Everything an admin client can do, as flows over one core; the facades run them."""

from __future__ import annotations

from ottla.client.admin_batches import AdminBatches
from ottla.client.admin_cluster import AdminCluster
from ottla.client.admin_configs import AdminConfigs
from ottla.client.admin_groups import AdminGroups
from ottla.client.admin_topics import AdminTopics
from ottla.client.admin_transactions import AdminTransactions


class AdminMachine(
    AdminTopics, AdminConfigs, AdminGroups, AdminTransactions, AdminCluster, AdminBatches
):
    pass
