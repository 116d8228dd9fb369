"""What every test shares: hypothesis finds the same examples in every run of the same sources."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ottla",
    derandomize=True,
    database=None,
    # Two cores shared with brokers and JVMs: a slow example is no finding.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ottla")
