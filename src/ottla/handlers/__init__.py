"""Handlers: one file per API key; they decide the answer and do no IO themselves."""
