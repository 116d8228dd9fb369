"""What can go wrong in a client, as types: what to do about each stands in its text.

`retriable` says that the same call may work later without a change; the client itself has retried
by then, within its time-outs. Fencing has a class of its own, because its only cure is to stop:
somebody else has taken this producer's or member's place.

`error_for(code, what)` makes the exception of a broker's error code.
"""

from __future__ import annotations

from ottla.base.errors import ConfigError, OttlaError
from ottla.protocol import error_codes as codes

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BufferFullError",
    "ClientError",
    "ClosedError",
    "ConfigError",
    "ConnectionLostError",
    "FencedError",
    "MalformedAnswerError",
    "NoBrokerError",
    "OutOfOrderError",
    "RecordTooLargeError",
    "TimedOutError",
    "TlsError",
    "TransactionAbortableError",
    "TransactionStateError",
    "UnknownTopicError",
    "UnsupportedByBrokerError",
    "error_for",
    "is_retriable_code",
]


class ClientError(OttlaError):
    """Base of everything that a client raises on purpose."""

    retriable = False


class ClosedError(ClientError):
    """The client has been closed; make a new one."""


class TimedOutError(ClientError):
    """No success in time. What was sent may have taken effect or may still do so."""

    retriable = True


class BufferFullError(TimedOutError):
    """`buffer.memory` stayed full for `max.block.ms`: records come in faster than they go out."""


class ConnectionLostError(ClientError):
    """The connection ended before the answer; what was asked may have happened."""

    retriable = True


class NoBrokerError(ConnectionLostError):
    """No broker could be reached; check `bootstrap.servers` and what the brokers advertise."""


class MalformedAnswerError(ConnectionLostError):
    """Bytes that are no answer to what was asked; the connection was closed."""


class TlsError(ClientError):
    """Client and broker do not trust each other, or one of them does not speak TLS: check
    `security.protocol`, `ssl.cafile` and the name in the broker's certificate."""


class UnsupportedByBrokerError(ClientError):
    """The broker speaks no version of a request that can say what was asked."""


class TransactionStateError(ClientError):
    """A call that does not fit the state of the transaction; the message says which would."""


class BrokerError(ClientError):
    """A broker's refusal: `code` and `name` are Kafka's, `said` its own words where it has any."""

    def __init__(self, code: int, what: str = "", message: str | None = None) -> None:
        self.code = code
        self.name = codes.name_of(code)
        self.retriable = is_retriable_code(code)
        self.said = said = message or codes.message_of(code)
        super().__init__(f"{what}: {said} ({self.name})" if what else f"{said} ({self.name})")


class UnknownTopicError(BrokerError):
    """The topic or partition does not exist (or is not visible to this user)."""


class RecordTooLargeError(BrokerError):
    """Larger than `max.request.size` here, or `max.message.bytes` of the topic."""


class AuthorizationError(BrokerError):
    """The principal of this client may not do this."""


class AuthenticationError(BrokerError):
    """The broker did not accept the credentials."""


class FencedError(BrokerError):
    """Another instance has taken this one's place (same transactional id or group instance id).

    Nothing that this one does will count any more: close it.
    """


class OutOfOrderError(BrokerError):
    """The broker misses earlier records of this producer: acknowledged data may be lost."""


class TransactionAbortableError(BrokerError):
    """The transaction cannot be committed; abort it and do it again.

    So it is after `transaction.timeout.ms`, too. If another instance has fenced this one, then the
    abort raises `FencedError`.
    """


_RETRIABLE_CODES = frozenset(
    {
        codes.CORRUPT_MESSAGE,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.REQUEST_TIMED_OUT,
        codes.REPLICA_NOT_AVAILABLE,
        codes.NETWORK_EXCEPTION,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.NOT_COORDINATOR,
        codes.NOT_ENOUGH_REPLICAS,
        codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        codes.NOT_CONTROLLER,
        codes.CONCURRENT_TRANSACTIONS,
        codes.KAFKA_STORAGE_ERROR,
        codes.FETCH_SESSION_ID_NOT_FOUND,
        codes.INVALID_FETCH_SESSION_EPOCH,
        codes.LISTENER_NOT_FOUND,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
        codes.OFFSET_NOT_AVAILABLE,
        codes.PREFERRED_LEADER_NOT_AVAILABLE,
        codes.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        codes.ELECTION_NOT_NEEDED,
        codes.UNSTABLE_OFFSET_COMMIT,
        codes.THROTTLING_QUOTA_EXCEEDED,
        codes.UNKNOWN_TOPIC_ID,
        codes.INCONSISTENT_TOPIC_ID,
        codes.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

_CLASSES: dict[int, type[BrokerError]] = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    codes.UNKNOWN_TOPIC_ID: UnknownTopicError,
    codes.MESSAGE_TOO_LARGE: RecordTooLargeError,
    codes.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
    codes.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    codes.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    codes.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    codes.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    codes.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    codes.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    codes.ILLEGAL_SASL_STATE: AuthenticationError,
    codes.INVALID_PRODUCER_EPOCH: FencedError,
    codes.PRODUCER_FENCED: FencedError,
    codes.FENCED_INSTANCE_ID: FencedError,
    codes.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderError,
    codes.TRANSACTION_ABORTABLE: TransactionAbortableError,
}


def is_retriable_code(code: int) -> bool:
    return code in _RETRIABLE_CODES


def error_for(code: int, what: str = "", message: str | None = None) -> BrokerError:
    """The exception of a broker's error code; `what` says what it was about."""
    return _CLASSES.get(code, BrokerError)(code, what, message)
