"""Tables of records: between a topic and Arrow with no Python object per record.

The rest of the client never imports this package before it is asked for a table: numpy and pyarrow
take longer to load than a small program runs.
"""
