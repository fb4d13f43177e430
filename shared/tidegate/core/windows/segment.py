"""A fixed set of categories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import DefinitionError
from tidegate.core.keys import expect_keys
from tidegate.core.windows.base import Window


@dataclass(frozen=True)
class SegmentWindow(Window):
    """The declared segments, in their order, whatever the anchor is; repeats count once.

    Raises DefinitionError for no segment or one that is no key, DefinitionTypeError where `segments` is no list.
    """

    segments: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        segments = expect_keys(self.segments, "SegmentWindow.segments", no_text=DefinitionError)  # as Airflow
        if not segments:
            raise DefinitionError("SegmentWindow.segments is empty: name at least one segment")
        object.__setattr__(self, "segments", segments)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[str]:
        return self.segments

    @property
    def sizes(self) -> tuple[int, int]:
        return (len(self.segments), len(self.segments))
