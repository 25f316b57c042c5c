"""How many queries a page makes, whatever it shows; R70: no wide column, no count of a whole table."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from django_jobs.models import Job, Schedule
from tests.factories import AttemptFactory, JobFactory
from tests.factories_pages import BatchFactory, ChainFactory, ScheduleFactory, ScheduleTickFactory, one_of_each, person
from tests.integration.admin.conftest import address
from tests.queries import asked

pytestmark = pytest.mark.django_db

WIDE = ("arguments", "context", "traceback", "data", "plan", "request", "job_types")
MOST = 10


@pytest.fixture
def viewer(client: Client) -> Client:
    """A browser of somebody who may look at everything; permissions cost queries that a superuser's do not."""
    user = person(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    return client


def read(client: Client, url: str, data: dict[str, str] | None = None) -> list[str]:
    """Return the statements of one page, which must answer."""
    with asked() as found:
        assert client.get(url, data).status_code == 200
    return found


@pytest.mark.parametrize("name", ["job", "deadletter"])
def test_r70_lists_make_few_queries_however_many_rows_there_are(viewer: Client, name: str) -> None:
    """R70: one job or sixty, a list makes at most ten queries, and counts no more than it says."""
    data = {"list": "1"} if name == "deadletter" else {}
    one_of_each()
    first = read(viewer, address(name, "changelist"), data)
    for number in range(60):
        JobFactory(dead_lettered=True, payload__key=f"order:{number}")
    then = read(viewer, address(name, "changelist"), data)

    assert len(first) == len(then) <= MOST
    assert [sql for sql in then if "COUNT(*)" in sql and "LIMIT 10001" not in sql and "outcome" not in sql] == []


def test_groups_of_dead_letters_make_few_queries(viewer: Client) -> None:
    """One group or twenty, the landing page makes at most ten queries."""
    JobFactory(dead_lettered=True)
    first = read(viewer, address("deadletter", "changelist"))
    for number in range(20):
        JobFactory(dead_lettered=True, error_fingerprint=f"v1:{number:064d}")
    then = read(viewer, address("deadletter", "changelist"))

    assert len(first) == len(then) <= MOST


@pytest.mark.parametrize("attempts", [1, 200])
def test_job_page_makes_the_same_queries_at_1_and_200_attempts(viewer: Client, attempts: int) -> None:
    """A job page reads each table once; how often the job was tried changes nothing."""
    job = one_of_each()[Job]
    viewer.get(address("job", "change", job.pk))  # content types are read once per process
    before = read(viewer, address("job", "change", job.pk))
    for number in range(2, attempts + 1):
        AttemptFactory(job=job, number=number, failed=True, traceback="Traceback …")
    after = read(viewer, address("job", "change", job.pk))

    assert len(before) == len(after) <= 23


def test_schedules_make_few_queries_however_many_there_are(viewer: Client) -> None:
    """One schedule or thirty, with a hundred ticks: list and page make at most ten queries, the same ones."""
    first_page = ScheduleFactory(name="a")
    for url in _addresses(first_page):
        viewer.get(url)  # content types are read once per process
    first = [read(viewer, url) for url in _addresses(first_page)]
    for number in range(30):
        ScheduleFactory(name=f"b{number}")
    for number in range(100):
        ScheduleTickFactory(schedule_name="a", minutes=number)
    then = [read(viewer, url) for url in _addresses(first_page)]

    assert [len(found) for found in first] == [len(found) for found in then]
    assert max(len(found) for found in then) <= MOST


def test_batches_make_few_queries_however_many_members_they_have(viewer: Client) -> None:
    """One batch or thirty, one member or two hundred: list and page make at most ten queries, the same ones."""
    batch = BatchFactory()
    urls = [address("batch", "changelist"), address("batch", "change", batch.pk)]
    for url in urls:  # content types are read once per process
        viewer.get(url)
    JobFactory(batch_id=batch.pk)
    first = [read(viewer, url) for url in urls]
    for number in range(200):
        JobFactory(batch_id=batch.pk, succeeded=number % 2 == 0)
    for _ in range(30):
        BatchFactory(closed=True)
    then = [read(viewer, url) for url in urls]

    assert [len(found) for found in first] == [len(found) for found in then]
    assert max(len(found) for found in then) <= MOST


def test_chain_page_reads_its_links_once(viewer: Client) -> None:
    """The page of a chain makes at most ten queries, its list as many with thirty chains as with one."""
    chain = ChainFactory()
    viewer.get(address("chain", "changelist"))
    first = read(viewer, address("chain", "changelist"))
    for _ in range(30):
        ChainFactory()

    assert len(first) == len(read(viewer, address("chain", "changelist"))) <= MOST
    assert len(read(viewer, address("chain", "change", chain.pk))) <= MOST


def _addresses(row: Schedule) -> list[str]:
    return [address("schedule", "changelist"), address("schedule", "change", row.pk)]


@pytest.mark.parametrize(
    "name",
    [
        *("job", "sideeffect", "outboxevent", "delivery", "inboxmessage", "quarantine", "worker", "pause"),
        *("operatoraction", "batch"),
    ],
)
def test_r70_lists_load_no_wide_column(viewer: Client, name: str) -> None:
    """R70: payloads, tracebacks, requests, events' data and plans are not read for a list."""
    one_of_each()
    told = " ".join(read(viewer, address(name, "changelist")))

    assert [column for column in WIDE if f'"{column}"' in told] == []


def test_a_list_goes_on_where_the_page_before_ended(viewer: Client) -> None:
    """Pages are cut by the primary key: newest first, each job once, and the way back to the newest."""
    made = [JobFactory().pk for _ in range(120)]
    url, seen = address("job", "changelist"), []
    query = ""
    while True:
        page = viewer.get(url + query).content.decode()
        seen += re.findall(r"/job/([0-9a-f-]{36})/change/", page)
        older = re.search(r'href="(\?before=[0-9a-f-]+)" rel="next"', page)
        assert ("Newest" in page) == bool(query)
        if older is None:
            break
        query = older[1]

    assert seen == [str(key) for key in reversed(made)]


def test_a_count_says_when_there_are_more(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its bound a list says "more than", and counts nothing further."""
    monkeypatch.setattr("django_jobs.admin.paging.CAP", 2)
    for _ in range(4):
        JobFactory()

    assert "more than 2 jobs" in viewer.get(address("job", "changelist")).content.decode()
