"""Finding one job by its id or the first digits of it."""

from __future__ import annotations

import uuid

import pytest

from django_jobs.operate.lookup import JobNotFoundError, find_job
from tests.integration.operate.stories import Story

pytestmark = pytest.mark.django_db

ONE = uuid.UUID("0199aaaa-0000-7000-8000-000000000001")
TWO = uuid.UUID("0199aaaa-0000-7000-8000-000000000002")
OTHER = uuid.UUID("0199bbbb-0000-7000-8000-000000000001")


@pytest.fixture(autouse=True)
def jobs() -> None:
    """Three jobs, two of which differ in their last digit only."""
    for identifier in (ONE, TWO, OTHER):
        Story(id=identifier)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (str(ONE), ONE),
        (ONE.hex, ONE),
        (str(TWO).upper(), TWO),
        ("0199bbbb", OTHER),
        ("0199bbbb-0000", OTHER),
        (" 0199bbbb ", OTHER),
    ],
)
def test_job_is_found_by_id_or_prefix(text: str, found: uuid.UUID) -> None:
    """The whole id finds a job in any spelling, and so does a prefix that no other job shares."""
    assert find_job(text, using="default").pk == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0199bbb", "8 hexadecimal digits"),
        ("", "8 hexadecimal digits"),
        ("order:7", "no job id"),
        (f"{ONE}0", "no job id"),
        ("0199cccc", "There is no job '0199cccc' in database 'default'"),
        (str(uuid.UUID(int=0)), "There is no job"),
        ("0199aaaa", f"More than one job begins with '0199aaaa': {ONE}, {TWO}. Give more digits."),
    ],
)
def test_anything_else_is_refused_with_the_mend(text: str, said: str) -> None:
    """What is too short, no id, unknown or ambiguous is refused, and the message says what to give."""
    with pytest.raises(JobNotFoundError) as refused:
        find_job(text, using="default")

    assert said in str(refused.value)


def test_many_candidates_are_not_all_listed() -> None:
    """An ambiguous prefix names five candidates at most."""
    for number in range(3, 9):
        Story(id=uuid.UUID(int=ONE.int - 1 + number))

    with pytest.raises(JobNotFoundError, match="and more") as refused:
        find_job("0199aaaa", using="default")

    assert str(refused.value).count("0199aaaa-") == 5
