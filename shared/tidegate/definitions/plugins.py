"""Types of users' own: mappers, windows, wait policies and timetables that definitions may name.

A class is known as soon as it is imported. So that every service imports it, a package says where its classes are, with
entry points in the groups `tidegate.mappers`, `tidegate.windows`, `tidegate.wait_policies` and `tidegate.timetables`,
each a class, or with one in `tidegate.plugins`, a `TidegatePlugin`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Final

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.mappers import PartitionMapper
from tidegate.core.plain import register_type, type_registry
from tidegate.core.policies import WaitPolicy
from tidegate.core.timetables import Timetable
from tidegate.core.windows import Window

PLUGINS: Final = "tidegate.plugins"


class TidegatePlugin:
    """A named set of types, as a subclass that lists them (Airflow's AirflowPlugin, as far as scheduling goes)."""

    name: ClassVar[str] = ""
    partition_mappers: ClassVar[Sequence[type]] = ()
    windows: ClassVar[Sequence[type]] = ()
    wait_policies: ClassVar[Sequence[type]] = ()
    timetables: ClassVar[Sequence[type]] = ()


GROUPS: Final[Mapping[str, tuple[str, type]]] = {
    "tidegate.mappers": ("partition_mappers", PartitionMapper),
    "tidegate.windows": ("windows", Window),
    "tidegate.wait_policies": ("wait_policies", WaitPolicy),
    "tidegate.timetables": ("timetables", Timetable),
}
"""Entry point groups, with the plugin's attribute and the base of the classes that belong there."""

_TIMETABLE_METHODS: Final = ("infer_manual_data_interval", "serialize", "deserialize", "validate")


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """Something that could not be registered, for the log; everything else is usable."""

    source: str
    reason: str


def register_plugin(plugin: type[TidegatePlugin]) -> None:
    """Make the types of a plugin known; raises DefinitionTypeError and DefinitionError for what is no such type."""
    if not isinstance(plugin, type) or not issubclass(plugin, TidegatePlugin):
        raise DefinitionTypeError(f"a plugin must be a subclass of TidegatePlugin, not {plugin!r}")
    for group, (attribute, _) in GROUPS.items():
        for kind in getattr(plugin, attribute):
            register(kind, group)


def register(kind: object, group: str) -> None:
    """Make one type known.

    Raises DefinitionTypeError if it does not belong to the group, DefinitionError where its name is taken.
    """
    attribute, base = GROUPS[group]
    if not isinstance(kind, type):
        raise DefinitionTypeError(f"{group} must give classes, not {kind!r}")
    if base is Timetable:
        if missing := _missing_of_a_timetable(kind):
            raise DefinitionTypeError(
                f"{kind.__qualname__} is no timetable, as it lacks {', '.join(missing)}: derive it from Timetable"
            )
    elif not issubclass(kind, base):
        raise DefinitionTypeError(f"{kind.__qualname__} in {attribute} must derive from {base.__name__}")
    name = getattr(kind, "type_name", kind.__name__)
    there = type_registry.get(name)
    if there is not None and there is not kind and _origin(there) != _origin(kind):
        raise DefinitionError(
            f"{'.'.join(_origin(kind))} and {'.'.join(_origin(there))} are both called {name!r}: rename one, or give"
            " it a type_name of its own"
        )
    register_type(kind)


def load_plugins(found: Iterable[EntryPoint] | None = None) -> tuple[PluginFailure, ...]:
    """Make known what installed packages bring; a package that fails is left out and named in the answer.

    Services and the command line ask once, when they start. A job that needs what was left out is refused with a clear
    error, and all others work.
    """
    failures: list[PluginFailure] = []
    points = (
        found
        if found is not None
        else [point for group in (*GROUPS, PLUGINS) for point in entry_points(group=group)]
    )
    for point in points:
        try:
            loaded = point.load()
            if point.group == PLUGINS:
                register_plugin(loaded)
            else:
                register(loaded, point.group)
        except (Exception, SystemExit) as error:
            # code of others: whatever it raises concerns only what it brings
            reason = f"{type(error).__name__}: {error}"
            failures.append(PluginFailure(f"{point.group}:{point.name} = {point.value}", reason))
    return tuple(failures)


def _missing_of_a_timetable(kind: type) -> list[str]:
    missing = [name for name in _TIMETABLE_METHODS if not callable(getattr(kind, name, None))]
    if not any(callable(getattr(kind, name, None)) for name in ("next_dagrun_info", "next_dagrun_info_v2")):
        missing.append("next_dagrun_info")
    return missing


def _origin(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
