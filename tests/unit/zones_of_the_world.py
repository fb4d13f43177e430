"""Every zone and every clock change that tests go through."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import strategies as st

NAMES = sorted(available_timezones() - {"localtime"})
FIRST, LAST = datetime(1975, 1, 1, tzinfo=UTC), datetime(2035, 12, 31, tzinfo=UTC)
_STEP = timedelta(days=6)
_SECOND = timedelta(seconds=1)


def _changes(zone: ZoneInfo) -> Iterator[datetime]:
    """The first instant of every new offset, found by halving steps that no two changes of one zone fit into."""

    def offset(at: datetime) -> timedelta | None:
        return at.astimezone(zone).utcoffset()

    start, before = FIRST, offset(FIRST)
    while start < LAST:
        end = start + _STEP
        after = offset(end)
        if before != after:
            low, high = start, end
            while high - low > _SECOND:
                middle = low + (high - low) // _SECOND // 2 * _SECOND
                low, high = (middle, high) if offset(middle) == before else (low, middle)
            yield high
        start, before = end, after


@cache
def changes(name: str) -> tuple[datetime, ...]:
    """The clock changes of a zone."""
    return tuple(_changes(ZoneInfo(name)))


@cache
def different_zones() -> tuple[str, ...]:
    """The names of zones, one for each history of offsets: links and twins are left out."""
    found: dict[object, str] = {}
    for name in NAMES:
        zone = ZoneInfo(name)
        history = tuple((at, at.astimezone(zone).utcoffset()) for at in changes(name))
        found.setdefault((FIRST.astimezone(zone).utcoffset(), history), name)
    return tuple(sorted(found.values()))


FEARED = (
    "America/Los_Angeles",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Havana",
    "America/Sao_Paulo",
    "Asia/Beirut",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Africa/Casablanca",
    "Europe/Berlin",
    "Asia/Pyongyang",
    "America/Caracas",
    "Pacific/Kwajalein",
    "UTC",
)

zones = (st.sampled_from(FEARED) | st.sampled_from(NAMES)).map(ZoneInfo)
_any_instants = st.datetimes(FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None), timezones=st.just(UTC))


@st.composite
def zones_and_instants(draw: st.DrawFn) -> tuple[ZoneInfo, datetime]:
    """A zone with any instant, or with one within two days of a clock change."""
    zone = draw(zones)
    near = changes(str(zone))
    if near and draw(st.integers(0, 3)):
        away = draw(st.integers(-48 * 60, 48 * 60))
        return zone, draw(st.sampled_from(near)) + timedelta(
            minutes=away, microseconds=draw(st.integers(-1, 1))
        )
    return zone, draw(_any_instants)
