"""Run with `ottla pipeline test examples/orders`: a broker of its own, the whole pipeline once."""

import json


def order(number, minute, product="lamp", quantity=1, price=10.0):
    at = f"2026-01-31T12:{minute:02d}:00Z"
    fields = {"order_id": f"o{number}", "customer": "ann", "product": product}
    return json.dumps({**fields, "quantity": quantity, "price": price, "at": at})


def test_orders_are_cleaned_counted_and_paired_with_their_payments(pipeline):
    pipeline.produce(
        "order-events",
        [
            order(1, 0, price=2.5, quantity=2),
            order(1, 0, price=2.5, quantity=2),  # again
            order(2, 0, "pen"),
            "no JSON",
            order(3, 0, quantity=0),
            order(4, 0, price=-1.0),
            order(5, 30),  # late enough to close the first window
        ],
    )
    pipeline.produce(
        "payments", ['{"order_id": "o1", "amount": 5.0, "paid_at": "2026-01-31T12:05:00Z"}']
    )
    pipeline.run()

    assert sorted(row["order_id"] for row in pipeline.table("clean_orders")) == ["o1", "o2", "o5"]
    broken, priceless = sorted(pipeline.values("orders.dead-letters"))
    assert (broken, json.loads(priceless)["order_id"]) == ("no JSON", "o4")
    paid = [json.loads(one) for one in pipeline.values("paid-orders")]
    assert [(one["order_id"], one["amount"]) for one in paid] == [("o1", 5.0)]
    revenue = {row["category"]: row["revenue"] for row in pipeline.table("revenue")}
    assert revenue == {"home": 5.0, "office": 10.0}
    assert len(pipeline.values("revenue")) == 2
