"""What happens in the shop that others may want to know."""

from __future__ import annotations

from django_jobs import event_type

order_paid = event_type("shop.order.paid", version=1, fields={"order_id": int, "number": str, "ref": str})
