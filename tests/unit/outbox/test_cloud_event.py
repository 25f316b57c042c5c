"""An event as CloudEvents JSON: required attributes, valid names, and the stored data unchanged."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from django_jobs.domain.canonical import canonical
from django_jobs.outbox.cloud_event import attributes, document
from tests.parcels import DATA, event


def test_document_has_what_the_specification_wants() -> None:
    """Id, source, type and specversion always; what the event does not have is left out."""
    number = uuid.UUID("0199aaaa-0000-7000-8000-000000000001")

    assert json.loads(document(event(id=number))) == {
        "specversion": "1.0",
        "id": "0199aaaa-0000-7000-8000-000000000001",
        "source": "urn:django:shop",
        "type": "shop.order.paid.v1",
        "time": "2026-05-04T12:00:00.000000Z",
        "datacontenttype": "application/json",
        "data": {"amount": "12.50", "order_id": 7},
    }


def test_everything_an_event_can_have_is_told() -> None:
    """Subject, order, correlation and trace are attributes with names that every binding can carry."""
    full = event(
        subject="order:7",
        ordering_key="order:7",
        key_seq=12,
        correlation_id="c-1",
        causation_id="d-1",
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        tenant="acme",
        created_at=datetime(2026, 5, 4, 14, tzinfo=timezone(timedelta(hours=2))),
    )

    found = attributes(full)

    assert (found["subject"], found["partitionkey"], found["sequence"]) == ("order:7", "order:7", "0" * 18 + "12")
    assert (found["correlationid"], found["causationid"], found["tenant"]) == ("c-1", "d-1", "acme")
    assert found["time"] == "2026-05-04T12:00:00.000000Z"
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in found)


def test_reference_takes_the_place_of_data() -> None:
    """An event whose content lies elsewhere has no data, and says where it is."""
    found = json.loads(document(event(data_text="", dataref="https://files.example/7")))

    assert found["dataref"] == "https://files.example/7"
    assert not {"data", "datacontenttype"} & set(found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(value=json_values, subject=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_stored_text_stands_in_the_document_byte_for_byte(value: Any, subject: str) -> None:
    """Whatever the data and the other attributes hold, the document is JSON and ends with the stored text."""
    text = canonical(value)
    body = document(event(data_text=text, subject=subject))

    assert body.endswith(b',"data":' + text.encode() + b"}")
    assert json.loads(body)["data"] == value
    assert json.loads(body).get("subject", "") == subject


def test_data_of_the_example_is_embedded() -> None:
    """A plain example of the above."""
    assert f'"data":{DATA}}}'.encode() in document(event())
