"""Coordinators: pure machines that keep groups in the records of an internal topic."""
