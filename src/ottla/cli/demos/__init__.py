"""Stories that the command line tells with real processes: one module each, and what they share."""
