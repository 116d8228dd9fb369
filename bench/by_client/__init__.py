"""Clients against each other on one broker: ours beside those that Python people use."""
