"""Loads, each a process of its own: `python -m bench.clients.NAME '{"argument": value}'`.

A process of its own, so that neither the progress bar nor what an earlier load left in memory has a
part in a figure. A load reads the broker's processor time itself, right around what it measures,
and prints one line of JSON.
"""
