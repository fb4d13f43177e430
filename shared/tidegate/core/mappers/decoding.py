"""Which mappers and windows fit together."""

from typing import Protocol

from tidegate.core.errors import DefinitionTypeError
from tidegate.core.mappers.base import PartitionMapper
from tidegate.core.windows.base import Window


class Pairing(Protocol):
    """A mapper that asks a window about the keys of another mapper."""

    @property
    def upstream_mapper(self) -> PartitionMapper: ...
    @property
    def window(self) -> Window: ...


def expect_decodable(pairing: Pairing) -> None:
    """Refuse a pair where the mapper does not decode keys to what the window works with; raises DefinitionTypeError."""
    mapper, window = pairing.upstream_mapper, pairing.window
    given, needed = mapper.expected_decoded_type, window.expected_decoded_type
    if type(mapper).decode_downstream is not PartitionMapper.decode_downstream and given is str:
        return  # a mapper of the user's that decodes, but does not say what to
    if not issubclass(given, needed):
        raise DefinitionTypeError(
            f"{type(pairing).__name__} cannot combine {type(mapper).__name__} with {type(window).__name__}: the window"
            f" works with {needed.__name__}, the mapper reads keys as {given.__name__}; {_way_out(needed)}"
        )


def _way_out(needed: type) -> str:
    if needed is str:
        return "use a mapper that leaves keys as text, such as FixedKeyMapper, or a calendar window"
    return "use a mapper that reads keys as times, such as StartOfDayMapper with DayWindow"
