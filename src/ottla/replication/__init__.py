"""Replication: who leads, who has how much, what is committed. Pure machines only."""
