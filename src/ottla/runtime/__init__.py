"""Runtime: the driver that runs effects: clocks, timers, threads, stores, files."""
