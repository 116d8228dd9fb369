"""Configs: every setting of brokers and topics: what it is called, what it may be, what it is now.

`definitions` knows the names, `broker_config` and `effective` the values in force, `alter` what may
be changed while brokers run, `describe` what DescribeConfigs tells, `listeners` the addresses.
The package imports none of them itself: start-up pays only for what it uses.
"""
