"""One peer: frames in, answers out, in order, with bounds on everything the peer decides.

Reads straight from the socket (`add_reader` on a non-blocking socket measured as fast as a uvloop
transport, and leaves the descriptor free for `sendfile`). Frames that arrive whole are handled
where they were received, in a buffer that all connections share; only a frame that comes in pieces
gets memory of its own. A handler must not keep a view of its frame past its return.

A peer that does not read its answers is not read from; a peer that stalls is closed by the sweep.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from typing import TYPE_CHECKING

from ottla.base.deferred import Deferred
from ottla.base.errors import MalformedRequest
from ottla.base.limits import (
    FIRST_REQUEST_MS_MAX,
    FRAME_BYTES_PER_SECOND_MIN,
    FRAME_STALL_MS_MAX,
    GATHERED_REQUESTS_MAX,
    PIPELINED_REQUESTS_MAX,
    TURN_ANSWER_BYTES_MAX,
    TURN_REQUESTS_MAX,
    WRITE_BUFFER_BYTES_MAX,
    WRITE_STALL_MS_MAX,
)
from ottla.handlers.context import Context
from ottla.handlers.reply import CloseConnection, OrderedDeferred, ParkedDeferred, Part
from ottla.net.gathering import AT_ONCE, Gathering
from ottla.net.incoming import FrameError, Incoming
from ottla.net.outgoing import Outgoing

if TYPE_CHECKING:
    from ottla.net.processor import Processor

log = logging.getLogger("ottla.net")

Answer = bytes | list[Part] | None


class _Slot:
    """The place of one request's answer in the order of answers."""

    __slots__ = ("answer", "bytes_held", "parked", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.answer: Answer = None
        self.bytes_held = 0  # in memory, of an answer that is ready before its turn
        self.parked: ParkedDeferred | None = None


class Connection:
    __slots__ = (
        "_barrier",
        "_bytes_held",
        "_closed",
        "_descriptor",
        "_gathering",
        "_is_continue_due",
        "_is_flush_due",
        "_low_mark",
        "_outgoing",
        "_processor",
        "_reading",
        "_slots",
        "_socket",
        "_writing",
        "answered",
        "client_address",
        "connection_id",
        "incoming",
        "last_context",
        "last_progress_ms",
        "last_read_ms",
        "listener_name",
        "opened_ms",
        "reads",
    )

    def __init__(
        self, processor: Processor, connected: socket.socket, listener_name: str, connection_id: int
    ) -> None:
        self._processor = processor
        self._socket = connected
        self._descriptor = connected.fileno()
        self.listener_name = listener_name
        self.connection_id = connection_id
        self.client_address = str(connected.getpeername()[0])
        self.last_context: Context | None = None
        self.incoming = Incoming(processor.scratch, processor.memory)
        self._outgoing = Outgoing(connected, processor.pool, self._flush)
        self._slots: deque[_Slot] = deque()
        self._barrier = False
        self._bytes_held = 0  # by answers that are ready before their turn
        self._reading = False
        self._writing = False
        self._is_flush_due = False
        self._is_continue_due = False
        self._closed = False
        self._gathering: Gathering | None = None
        self._low_mark = AT_ONCE  # bytes that the kernel was told to wait for
        self.reads = 0
        self.answered = 0
        self.opened_ms = self.last_read_ms = self.last_progress_ms = processor.now_ms()
        self._resume_reading()

    # -- reading ----------------------------------------------------------------------------

    def _on_readable(self) -> None:
        received, requests = self._read()
        if requests > 1 or self._gathering is not None:
            self._gather(received, requests)

    def _read(self) -> tuple[int, int]:
        """How many bytes came, and how many requests were handled."""
        try:
            received = self.incoming.receive(self._socket)
        except BlockingIOError:
            return 0, 0
        except OSError:
            self.close()
            return 0, 0
        except FrameError as refused:
            self._refuse(refused)
            return 0, 0
        if received == 0:
            self.close()
            return 0, 0
        self.reads += 1
        self.last_read_ms = self._processor.now_ms()
        return received, self._handle_frames()

    def _handle_frames(self) -> int:
        """Handle the whole frames at hand, until an answer must be waited for; of very many some,
        since other connections have their turn in between."""
        incoming = self.incoming
        handled = 0
        try:
            if self._gathering is not None and not self._slots:
                handled = self._handle_run()
            while (
                not self._barrier
                and handled < TURN_REQUESTS_MAX
                and len(self._slots) < PIPELINED_REQUESTS_MAX
                and self._bytes_held <= WRITE_BUFFER_BYTES_MAX
            ):
                frame = incoming.next_frame()
                if frame is None:
                    break
                self._handle(frame)
                handled += 1
                if self._closed or (
                    self._outgoing.bytes_queued > WRITE_BUFFER_BYTES_MAX and not self._drained()
                ):
                    break
        except (FrameError, MalformedRequest, CloseConnection) as refused:
            self._refuse(refused)
            return handled
        except Exception:  # the last line of defence: one bad request must not end the broker
            log.exception("request of %s failed", self.client_address)
            self.close()
        if self._closed:
            return handled
        try:
            incoming.put_aside(self.last_read_ms)
        except FrameError as refused:
            self._refuse(refused)
            return handled
        queued = self._outgoing.bytes_queued
        if not 0 < queued <= TURN_ANSWER_BYTES_MAX or not self._processor.turn.keeps(self):
            self._flush()
        return handled

    def _handle_run(self) -> int:
        """Several requests alike that can be answered together: one write, one piece to send."""
        frames = self.incoming.whole_frames(GATHERED_REQUESTS_MAX)
        if len(frames) < 2:
            return 0
        answers = self._processor.dispatch_run(self, frames)
        count = len(answers)
        if count:
            self.incoming.skip(frames[:count])
            self.answered += count
            self._outgoing.put_bytes(b"".join(answers))
        return count

    def _gather(self, received: int, requests: int) -> None:
        """Several came at once, now or before: how much to wait for the next time."""
        gathering = self._gathering
        if gathering is None:
            if self._processor.patience is None:
                return
            gathering = self._gathering = Gathering()
        gathering.on_read(requests, received)
        self._wait_for(gathering.bytes_wanted)

    def is_gathered(self) -> bool:
        return self._low_mark > AT_ONCE and not self._closed

    def read_late(self) -> None:
        gathering = self._gathering
        assert gathering is not None
        if not self._reading:
            self._wait_for(AT_ONCE)
            return
        received, requests = self._read()
        gathering.on_late(requests, received)
        self._wait_for(gathering.bytes_wanted)

    def _wait_for(self, bytes_wanted: int) -> None:
        """Tell the kernel how many bytes are worth being woken for."""
        if self._slots:
            bytes_wanted = AT_ONCE  # it is owed answers, and may not send more before it has them
        if bytes_wanted == self._low_mark or self._closed:
            return
        self._low_mark = bytes_wanted
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, bytes_wanted)
        except OSError:
            self.close()
            return
        if bytes_wanted > AT_ONCE and self._processor.patience is not None:
            self._processor.patience.watch(self)

    def _drained(self) -> bool:
        """Cheap requests with dear answers: send before more of them are handled."""
        try:
            return self._outgoing.pump()
        except OSError:
            self.close()
            return False

    def _handle(self, frame: memoryview) -> None:
        outcome = self._processor.dispatch(self, frame)
        lookout = self._processor.lookout
        # Not after records: whoever gets those is busy with them for a while.
        if (
            lookout is not None
            and type(outcome) is not list
            and (self._gathering is None or not self._gathering.bytes_aimed)
        ):
            lookout.request_came()
        if type(outcome) is bytes and not self._slots:
            self.answered += 1
            self._outgoing.put_bytes(outcome)
        elif isinstance(outcome, Deferred):
            slot = _Slot()
            self._slots.append(slot)
            if isinstance(outcome, OrderedDeferred) and not outcome.done:
                self._barrier = True
            elif isinstance(outcome, ParkedDeferred):
                slot.parked = outcome
            outcome.when_done(lambda done: self._on_answer(slot, done))
        elif self._slots:
            slot = _Slot()
            slot.ready, slot.answer = True, outcome
            self._slots.append(slot)
            self._hold(slot)
        else:
            self._send(outcome)

    def _send(self, answer: Answer) -> None:
        self.answered += 1
        if isinstance(answer, bytes):
            self._outgoing.put_bytes(answer)
        elif answer is not None:
            self._outgoing.put(answer)

    def _refuse(self, refused: Exception) -> None:
        self._processor.complain(self.client_address, str(refused))
        # What was answered before is still owed, as far as the socket takes it at once.
        self._flush()
        self.close()

    # -- answers ----------------------------------------------------------------------------

    def _on_answer(self, slot: _Slot, outcome: Deferred[Answer]) -> None:
        was_barrier = isinstance(outcome, OrderedDeferred)
        if self._closed:
            return
        try:
            slot.answer = outcome.result()
        except CloseConnection as refused:
            self._refuse(refused)
            return
        except Exception:
            log.exception("request of %s failed", self.client_address)
            self.close()
            return
        slot.ready = True
        slot.parked = None
        if was_barrier:
            self._barrier = False
        if slot is not self._slots[0]:
            self._hold(slot)
        self._collect()
        if self.incoming.has_aside():
            self._handle_frames()
        elif self._slots:
            self._flush_at_the_end_of_the_turn()
        else:
            self._flush()

    def _flush_at_the_end_of_the_turn(self) -> None:
        """More answers are awaited, and what brought this one may bring some of them in the same
        turn: a watermark passes several batches. They leave together, and wake the peer once."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._processor.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _hold(self, slot: _Slot) -> None:
        """Its turn has not come, and what it waits behind may take its time."""
        answer = slot.answer
        if isinstance(answer, bytes):
            slot.bytes_held = len(answer)
        elif answer is not None:
            slot.bytes_held = sum(len(part) for part in answer if isinstance(part, bytes))
        self._bytes_held += slot.bytes_held

    def send_now(self) -> None:
        """At the end of a busy turn, or of a moment of it."""
        try:
            self._flush()
        except Exception:  # others wait behind this one
            log.exception("answers to %s failed", self.client_address)
            self.close()

    def _collect(self) -> None:
        """Move answers, in the order of their requests, to what is sent."""
        slots = self._slots
        while slots and slots[0].ready:
            slot = slots.popleft()
            self._bytes_held -= slot.bytes_held
            self._send(slot.answer)

    def _flush(self) -> None:
        if self._closed:
            return
        outgoing = self._outgoing
        if outgoing.parts:
            try:
                done = outgoing.pump()
            except OSError:
                self.close()
                return
            if not done:
                self.last_progress_ms = self._processor.now_ms()
                self._watch_writable(not outgoing.waiting)
                self._pause_reading()
                return
        if self._writing:
            self._watch_writable(False)
        if (
            self._barrier
            or len(self._slots) >= PIPELINED_REQUESTS_MAX
            or self._bytes_held > WRITE_BUFFER_BYTES_MAX
        ):
            self._pause_reading()
        elif self.incoming.has_aside() and not self.incoming.is_partial():
            self._go_on_in_the_next_turn()
        elif not self._reading:
            self._resume_reading()

    def _go_on_in_the_next_turn(self) -> None:
        """With what is at hand, before more is read: that would be another turn for this peer."""
        self._pause_reading()
        if not self._is_continue_due:
            self._is_continue_due = True
            self._processor.call_soon(self._continue)

    def _continue(self) -> None:
        self._is_continue_due = False
        if not self._closed:
            self._handle_frames()

    def _watch_writable(self, wanted: bool) -> None:
        if wanted != self._writing:
            self._writing = wanted
            if wanted:
                self._processor.loop.add_writer(self._descriptor, self._flush)
            else:
                self._processor.loop.remove_writer(self._descriptor)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._processor.loop.remove_reader(self._descriptor)

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            # While nobody read from it, it could not go on.
            self.last_read_ms = self.incoming.began_ms = self._processor.now_ms()
            self._processor.loop.add_reader(self._descriptor, self._on_readable)

    # -- end --------------------------------------------------------------------------------

    def overdue(self, now_ms: int, idle_ms_max: int) -> str | None:
        """Why the sweep should close this connection, if it should."""
        if self._outgoing.parts:
            if now_ms - self.last_progress_ms > WRITE_STALL_MS_MAX:
                return "it does not read its answers"
            return None
        if self._reading and self.incoming.is_partial():
            if now_ms - self.last_read_ms > FRAME_STALL_MS_MAX:
                return "it sent half a request and stalled"
            seconds_max = self.incoming.declared_bytes() / FRAME_BYTES_PER_SECOND_MIN
            if now_ms - self.incoming.began_ms > FRAME_STALL_MS_MAX + 1000 * seconds_max:
                return "its request comes too slowly"
            if self.answered == 0 and now_ms - self.opened_ms > FIRST_REQUEST_MS_MAX:
                return "no whole request came in time"
        if not self._slots and now_ms - self.last_read_ms > idle_ms_max:
            return "idle"
        return None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pause_reading()
        self._watch_writable(False)
        self.incoming.release()
        for slot in self._slots:
            if slot.parked is not None:
                slot.parked.abandon()
        self._slots.clear()
        self._socket.close()
        self._processor.forget(self)
