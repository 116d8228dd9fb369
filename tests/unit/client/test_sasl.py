"""Goal: the password stays here, and only a broker that knows it is believed. Method: the examples
of RFC 7677 and Kafka's escaping; brokers that cheat.
"""

from __future__ import annotations

import pytest

from ottla.client.errors import AuthenticationError
from ottla.client.sasl import Plain, Scram, conversation

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def scram() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_example_of_the_standard() -> None:
    ours = scram()
    assert ours.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert ours.reply(CHALLENGE) == PROOF
    assert not ours.is_done
    ours.reply(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert ours.is_done


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"r=rO", b"r=xx"),
        CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=2000000000"),
        CHALLENGE.replace(b"i=4096", b"i=many"),
        CHALLENGE.replace(b"s=W22", b"s=W2!"),
        b"e=other-error",
        b"\xff",
        b"",
    ],
)
def test_a_challenge_that_does_not_fit_is_refused(challenge: bytes) -> None:
    with pytest.raises(AuthenticationError):
        scram().reply(challenge)


@pytest.mark.parametrize("last", [b"v=AAAA", b"v=", b"", b"e=invalid-proof"])
def test_a_broker_that_does_not_know_the_password_is_refused(last: bytes) -> None:
    ours = scram()
    ours.reply(CHALLENGE)
    with pytest.raises(AuthenticationError):
        ours.reply(last)
    assert not ours.is_done


def test_names_are_escaped_and_nonces_new() -> None:
    first, second = (conversation("SCRAM-SHA-512", "a=b,c", "p").first() for _ in range(2))
    assert first.startswith(b"n,,n=a=3Db=2Cc,r=")
    assert first != second


def test_plain() -> None:
    plain = Plain("user", "pencil")
    assert plain.first() == b"\0user\0pencil"
    plain.reply(b"")
    assert plain.is_done
