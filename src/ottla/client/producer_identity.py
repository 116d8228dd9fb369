"""Who an idempotent producer is: its id and epoch, from the cluster or bumped by itself.

Without transactions any broker gives an id, and a new epoch of it needs nobody's consent: nobody
else has the id (KIP-360). When epochs run out a new id is asked for. With transactions the
coordinator decides; `transactions` sets what it answered.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import OttlaError
from ottla.client.core import Core
from ottla.client.errors import error_for
from ottla.client.pending import Flow
from ottla.protocol.api_keys import INIT_PRODUCER_ID
from ottla.protocol.error_codes import NONE

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 2  # 32767 itself is never given out
_FOREVER_MS = float("inf")


class ProducerIdentity:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._asking: Flow[None] | None = None
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.error: OttlaError | None = None  # why there will never be an id
        self.on_known: Callable[[], None] = lambda: None

    @property
    def is_known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def set(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.on_known()

    def forget(self) -> None:
        self.producer_id, self.epoch = NO_PRODUCER_ID, NO_EPOCH

    def ask(self) -> None:
        """Begins to ask the cluster for an id, if nobody does already."""
        if self._asking is None:
            self._asking = self._core.spawn(self._ask())

    async def _ask(self) -> None:
        try:
            # Batches have deadlines; this has none of its own.
            await self._core.retry(self._attempt, _FOREVER_MS, "a producer id")
        except OttlaError as error:
            self.error = error
        finally:
            self._asking = None

    async def _attempt(self) -> None:
        core = self._core
        fields = {
            "transactional_id": None,
            "transaction_timeout_ms": 2**31 - 1,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_EPOCH,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        }
        answer = await core.request(core.least_loaded(), INIT_PRODUCER_ID, fields)
        if answer.error_code != NONE:
            raise error_for(answer.error_code, "InitProducerId")
        self.set(answer.producer_id, answer.producer_epoch)

    def bump(self) -> None:
        """The next epoch of the same id; without one left, a new id has to come first."""
        if self.epoch >= EPOCH_MAX:
            self.forget()
        else:
            self.epoch += 1
