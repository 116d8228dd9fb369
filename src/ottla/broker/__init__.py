"""Broker: configuration, wiring, life cycle, health, metrics. Decides nothing."""
