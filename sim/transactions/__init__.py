"""Transactions in simulated time: the real machines, a network that delays, leaders that die."""
