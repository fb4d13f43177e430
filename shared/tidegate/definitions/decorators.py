"""`@asset` and `@asset.multi`: a function that makes an asset, with the job that runs it."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tidegate.core.access import AssetAccessControl
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.definitions.asset import Asset, AssetAlias
from tidegate.definitions.job import Job

_GIVEN: Final = ("self", "context", "outlet_events")
"""Parameters that stand for the asset itself, the run, and its outlets; every other without a default is an inlet."""


class AssetDefinition(Asset):
    """An asset that a function makes. It is the asset itself wherever an asset is meant, and has its job beside it."""

    plain_type = Asset
    """In plain data it is an asset; its job is a definition of its own."""

    job: Job
    function: Callable[..., Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asset) and (self.name, self.uri) == (other.name, other.uri)

    def __hash__(self) -> int:
        return hash((self.name, self.uri))


class MultiAssetDefinition:
    """A function that makes several assets, with its job."""

    def __init__(self, job: Job, function: Callable[..., Any]) -> None:
        self.job = job
        self.function = function


class _AssetDecorator:
    """`@asset(schedule=...)`."""

    def __call__(
        self,
        *,
        schedule: Any,
        name: str | None = None,
        uri: str | None = None,
        group: str = "asset",
        extra: Mapping[str, Any] | None = None,
        access_control: AssetAccessControl | None = None,
        dag_id: str | None = None,
        description: str | None = None,
        **job: Any,
    ) -> Callable[[Callable[..., Any]], AssetDefinition]:
        """The function's asset and job; both are called like the function unless `name` and `dag_id` say otherwise.

        Other arguments are those of Job. A parameter of the function names an asset that is read, apart from `self`,
        `context` and `outlet_events`, and from those with a default. `Worker.add` makes a worker call the function.
        """

        def define(function: Callable[..., Any]) -> AssetDefinition:
            own_name = name or _name_of(function)
            made = AssetDefinition(own_name, uri, group=group, extra=extra, access_control=access_control)
            plain_asset = Asset(made.name, made.uri, group=group, extra=extra, access_control=access_control)
            own_job = _job(function, dag_id or own_name, schedule, [plain_asset], description, job)
            for field, value in (("job", own_job), ("function", function)):
                object.__setattr__(made, field, value)
            return made

        return define

    def multi(
        self,
        *,
        schedule: Any,
        outlets: Iterable[Asset | AssetAlias],
        name: str | None = None,
        dag_id: str | None = None,
        description: str | None = None,
        **job: Any,
    ) -> Callable[[Callable[..., Any]], MultiAssetDefinition]:
        """The job of a function that makes all of `outlets`; it has no `self`, which would be one asset."""
        made = list(outlets)
        if not made:
            raise DefinitionError("asset.multi needs at least one asset in outlets")

        def define(function: Callable[..., Any]) -> MultiAssetDefinition:
            own_name = dag_id or name or _name_of(function)
            if "self" in inspect.signature(function).parameters:
                raise DefinitionTypeError(
                    f"{_name_of(function)}(self) makes several assets, and `self` would be one: use outlet_events"
                )
            return MultiAssetDefinition(_job(function, own_name, schedule, made, description, job), function)

        return define


asset: Final = _AssetDecorator()


def _name_of(function: Callable[..., Any]) -> str:
    if not callable(function):
        raise DefinitionTypeError(f"@asset decorates a function, not {function!r}")
    return function.__name__


def _job(
    function: Callable[..., Any],
    job_id: str,
    schedule: Any,
    outlets: Sequence[Asset | AssetAlias],
    description: str | None,
    arguments: Mapping[str, Any],
) -> Job:
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise DefinitionTypeError(
                f"{function.__name__}(*{parameter.name}) cannot be an asset: name every parameter after the asset that"
                " it stands for"
            )
    named = [each.name for each in parameters if each.name not in _GIVEN and each.default is each.empty]
    made = {outlet.name for outlet in outlets if isinstance(outlet, Asset)}
    read = [Asset.ref(name=name) for name in named if name not in made]
    return Job(
        id=job_id,
        schedule=schedule,
        inlets=read,
        outlets=outlets,
        description=(description if description is not None else inspect.getdoc(function) or "").strip(),
        **arguments,
    )
