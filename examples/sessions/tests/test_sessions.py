"""Run with `ottla pipeline test examples/sessions`: a broker of its own, three runs."""

import json


def click(customer, minute):
    at = f"2026-01-31T12:{minute:02d}:00Z"
    return json.dumps({"customer": customer, "page": "/", "at": at})


def test_a_session_goes_on_after_a_restart(pipeline):
    pipeline.produce("clicks", [click("ann", 0), click("bob", 1), click("ann", 5)])
    pipeline.run()
    assert pipeline.values("sessions") == []  # none of them is over

    pipeline.produce("clicks", [click("ann", 9), click("carl", 45)])
    pipeline.run()
    found = [json.loads(value) for value in pipeline.values("sessions")]
    assert sorted((one["customer"], one["clicks"]) for one in found) == [("ann", 3), ("bob", 1)]
