"""Simulated worlds: the real machines under virtual time, seeds and faults. Not in the wheel."""
