"""What every test shares: hypothesis finds the same examples in every run of the same sources, and
an interrupt interrupts.
"""

from __future__ import annotations

import signal

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

# A shell without job control starts what it puts in the background with SIGINT ignored, and every
# process inherits that: tests that interrupt a command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
