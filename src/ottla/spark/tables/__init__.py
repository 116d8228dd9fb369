"""Files and tables as sinks: every batch once, and with it the offsets that it holds."""
