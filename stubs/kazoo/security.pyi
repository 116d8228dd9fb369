class ACL: ...

OPEN_ACL_UNSAFE: list[ACL]
CREATOR_ALL_ACL: list[ACL]
