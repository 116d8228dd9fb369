"""Goal: keys, names and first flexible versions are Kafka's."""

from __future__ import annotations

from kio.schema.index import api_key_map, schema_name_map

from ottla.protocol import api_keys
from tests.unit.protocol.kio_messages import schema_of


def test_every_key_of_kio_is_here_under_its_name() -> None:
    for key, name in api_key_map.items():
        assert getattr(api_keys, name.upper()) == key
        assert api_keys.name_of(key) == "".join(word.capitalize() for word in name.split("_"))


def test_the_table_of_flexible_versions_is_what_kio_says() -> None:
    for key, name in api_key_map.items():
        for version in schema_name_map[name]:
            for is_request in (True, False):
                flexible = schema_of(key, version, is_request).__flexible__
                assert api_keys.is_flexible(key, version) == flexible, (key, version)
    assert set(api_keys.FIRST_FLEXIBLE_VERSION) == set(api_key_map)


def test_unknown_keys_have_a_name_and_no_flexible_version() -> None:
    assert api_keys.name_of(4) == "LeaderAndIsr"
    assert api_keys.name_of(4000) == "Unknown4000"
    assert not api_keys.is_flexible(4000, 32_767)
