"""A fixed set of categories."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.keys import validate_key
from tidegate.core.windows.base import Window


@dataclass(frozen=True)
class SegmentWindow(Window):
    """The declared segments, in their order, whatever the anchor is; repeats count once.

    Raises DefinitionError for no segment or one that is no key, DefinitionTypeError where `segments` is no list.
    """

    segments: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Iterable[str] = self.segments
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise DefinitionTypeError(
                f"SegmentWindow.segments must be a list of keys, not {given!r}: write SegmentWindow(['us', 'eu'])"
            )
        segments = tuple(dict.fromkeys(sorted(given) if isinstance(given, set | frozenset) else given))
        if not segments:
            raise DefinitionError("SegmentWindow.segments is empty: name at least one segment")
        for segment in segments:
            if not isinstance(segment, str):
                raise DefinitionError(
                    f"SegmentWindow.segments holds {segment!r}, which is not text: use keys such as 'us'"
                )
            try:
                validate_key(segment)
            except ValueError as error:
                raise DefinitionError(f"SegmentWindow.segments: {error}") from error
        object.__setattr__(self, "segments", segments)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[str]:
        return self.segments

    @property
    def sizes(self) -> tuple[int, int]:
        return (len(self.segments), len(self.segments))
