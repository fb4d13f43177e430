"""The partition date of a run (rule D2)."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.dates import ContributedDate, ResolvedDate, resolve_partition_date

ONE, OTHER = datetime(2026, 3, 10, tzinfo=UTC), datetime(2026, 3, 11, tzinfo=UTC)
dates = st.lists(
    st.builds(ContributedDate, st.sampled_from([None, ONE, OTHER]), st.booleans(), st.just(False)), max_size=6
)


@given(dates, st.randoms(use_true_random=False))
def test_the_order_of_arrival_never_matters(contributed: list[ContributedDate], random: object) -> None:
    shuffled = list(contributed)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert resolve_partition_date(shuffled) == resolve_partition_date(contributed)


@given(dates)
def test_there_is_a_date_or_a_conflict_or_nobody_gave_one(contributed: list[ContributedDate]) -> None:
    at, conflict = resolve_partition_date(contributed)
    given_dates = {each.at for each in contributed if each.at is not None}
    assert at is None or not conflict
    assert (at is None and not conflict) == (not given_dates)
    assert set(conflict) <= given_dates
    assert len(conflict) != 1
    assert list(conflict) == sorted(conflict)


@given(dates)
def test_a_date_in_the_key_leaves_the_carried_ones_without_a_say(contributed: list[ContributedDate]) -> None:
    decoded = [each for each in contributed if each.decoded]
    if any(each.at for each in decoded):
        assert resolve_partition_date(contributed) == resolve_partition_date(decoded)


@given(dates, st.booleans())
def test_a_repeated_or_missing_date_changes_nothing(
    contributed: list[ContributedDate], decoded: bool
) -> None:
    resolved = resolve_partition_date(contributed)
    assert resolve_partition_date([*contributed, *contributed, ContributedDate(None, decoded)]) == resolved


def test_two_carried_dates_are_a_conflict() -> None:
    carried = [ContributedDate(OTHER, False), ContributedDate(ONE, False), ContributedDate(None, False)]
    assert resolve_partition_date(carried) == ResolvedDate(None, (ONE, OTHER))


def test_a_carried_date_never_stands_in_for_a_conflict_of_decoded_ones() -> None:
    contributed = [ContributedDate(ONE, True), ContributedDate(OTHER, True), ContributedDate(ONE, False)]
    assert resolve_partition_date(contributed) == ResolvedDate(None, (ONE, OTHER))


def test_one_instant_in_two_zones_is_one_date() -> None:
    same = ONE.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert resolve_partition_date(
        [ContributedDate(ONE, False), ContributedDate(same, False)]
    ) == ResolvedDate(ONE)


def test_a_date_that_a_mapper_failed_to_read_is_not_known_whatever_else_there_is() -> None:
    failed = ContributedDate(None, True, is_failed=True)
    for decoded in (True, False):
        assert resolve_partition_date([ContributedDate(ONE, decoded), failed]) == ResolvedDate(None)


def test_nobody_gave_a_date() -> None:
    assert (
        resolve_partition_date([])
        == resolve_partition_date([ContributedDate(None, True)])
        == ResolvedDate(None)
    )
