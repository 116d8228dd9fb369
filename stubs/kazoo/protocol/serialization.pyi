from collections.abc import Sequence

from kazoo.security import ACL

class Create:
    def __init__(self, path: str, data: bytes | None, acl: Sequence[ACL], flags: int) -> None: ...
