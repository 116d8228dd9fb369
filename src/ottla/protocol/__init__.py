"""Protocol: Kafka's wire format, from a frame's first byte to a message's last tagged field.

Knows what the bytes say and never what they mean. Nothing here trusts a declared count or length.
"""
