"""S4, S8: a decision needs the token of its form, and no parameter of an address becomes a part of a query."""

from __future__ import annotations

import pytest
from django.test import Client

from django_jobs.admin.decisions import OFFERS
from django_jobs.models import DeadLetter, Job, OperatorAction
from tests.factories_pages import one_of_each, person
from tests.integration.admin.conftest import address

pytestmark = pytest.mark.django_db


def test_s04_no_decision_without_the_token_of_its_form() -> None:
    """S4: a POST from another site is refused at every decision, also with the cookies of a superuser."""
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(person(is_staff=True, is_superuser=True))
    rows = one_of_each()
    before = OperatorAction.objects.count()
    for model, offers in OFFERS.items():
        for offer in offers:
            url = address(model._meta.model_name, offer.path.replace("-", "_"), rows[model].pk)
            answer = browser.post(url, {"reason": "a reason that is long enough", "owner": "x", "yes": "1"})
            assert answer.status_code == 403, url
    assert OperatorAction.objects.count() == before


@pytest.mark.parametrize(
    "order", ["o=-99", "o=1.-2.abc", "o=(select 1)", "o=id%3B--", "o=payload__arguments", "p=-1", "p=9" * 9]
)
def test_s08_hostile_ordering_is_harmless(root: Client, order: str) -> None:
    """S8: an ordering or a page that does not exist changes nothing of what is read."""
    one_of_each()
    for model in (Job, DeadLetter):
        answer = root.get(f"{address(model._meta.model_name, 'changelist')}?{order}")
        assert answer.status_code in (200, 302, 400), (model, order)
