"""Templates over a run, `{{ partition_date | ds }}`: Jinja2 in its sandbox, with Airflow's date filters.

Needs the extra `cli`, so nothing here is imported by the rest of the SDK.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidegate.sdk.errors import TemplateError

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment


def check_template(text: str) -> None:
    """Raises TemplateError where `text` is no template; names are looked at when it is rendered."""
    from jinja2 import TemplateError as JinjaError

    try:
        _environment().from_string(text)
    except JinjaError as error:
        raise TemplateError(f"template {text!r} cannot be read: {error}") from error


def render(text: str, context: Mapping[str, Any]) -> str:
    """`text` with its expressions filled in by `Run.context`.

    An expression that gives None, such as the key of a run without partitions, is empty text, as in the environment of
    `tidegate exec` (Airflow writes "None", which a command would take for a key). Raises TemplateError for a name that
    is not there and for a date filter on a run without a date.
    """
    from jinja2 import TemplateError as JinjaError

    try:
        return _environment().from_string(text).render(context)
    except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        if isinstance(error, TemplateError):
            raise
        raise TemplateError(f"template {text!r} cannot be filled in: {error}") from error


@lru_cache(maxsize=1)
def _environment() -> "ImmutableSandboxedEnvironment":
    try:
        from jinja2 import StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise TemplateError("templates need Jinja2: install tidegate[cli]") from error
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        cache_size=400,
        finalize=lambda value: "" if value is None else value,
    )
    environment.filters.update(
        ds=lambda at: _date(at, "ds").strftime("%Y-%m-%d"),
        ds_nodash=lambda at: _date(at, "ds_nodash").strftime("%Y%m%d"),
        ts=lambda at: _date(at, "ts").isoformat(),
        ts_nodash=lambda at: _date(at, "ts_nodash").strftime("%Y%m%dT%H%M%S"),
        ts_nodash_with_tz=lambda at: _date(at, "ts_nodash_with_tz").strftime("%Y%m%dT%H%M%S%z"),
    )
    return environment


def _date(at: object, name: str) -> datetime:
    if isinstance(at, datetime):
        return at
    what = "the run has no date" if at is None else f"{at!r:.60} is no date"
    raise TemplateError(f"filter {name!r} needs a date, and {what}")
