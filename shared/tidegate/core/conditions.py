"""Conditions over assets: `a & b | c`, as the definition writes them and as the rollup's script decides them.

A condition is a tree for people and for plain data; for the script it is a short list of clauses, each the indexes of
assets that must all be satisfied (rule R8).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Final

from tidegate.core.errors import DefinitionError
from tidegate.core.plain import Plain, check_fields, expect, from_plain

MAX_CLAUSES: Final = 64


class Condition(Plain, ABC, is_base=True):
    """Something that asset events can satisfy."""

    described: ClassVar[str] = "an asset, a reference, an alias, or several joined by & and |"
    """What messages call it: nobody writes its name."""

    def __and__(self, other: "Condition") -> "AssetAll":
        return AssetAll(self, expect(other, Condition, "the right side of &"))

    def __or__(self, other: "Condition") -> "AssetAny":
        return AssetAny(self, expect(other, Condition, "the right side of |"))

    @abstractmethod
    def leaves(self) -> Iterator["Condition"]:
        """The assets named, in reading order, repeats included."""

    @abstractmethod
    def alternatives(self) -> Collection[frozenset["Condition"]]:
        """The smallest sets of leaves that satisfy the condition, each on its own.

        Raises DefinitionError where there are more than 64.
        """

    def clauses(self) -> tuple[tuple["Condition", ...], tuple[tuple[int, ...], ...]]:
        """The distinct leaves in reading order, and the alternatives as indexes into them; raises as they do."""
        leaves = tuple(dict.fromkeys(self.leaves()))
        index = {leaf: n for n, leaf in enumerate(leaves)}
        return leaves, tuple(
            sorted(tuple(sorted(index[leaf] for leaf in one)) for one in self.alternatives())
        )


def _smallest(alternatives: Iterable[frozenset[Condition]]) -> Collection[frozenset[Condition]]:
    """Those that hold no other one; never more than the clauses a job may have, so that combining them stays cheap."""
    found: list[frozenset[Condition]] = []
    for one in sorted(set(alternatives), key=len):
        if not any(smaller <= one for smaller in found):
            found.append(one)
            if len(found) > MAX_CLAUSES:
                raise DefinitionError(
                    f"the condition has more than {MAX_CLAUSES} ways to be satisfied: split the job or nest fewer | in"
                    " &"
                )
    return found


class Leaf(Condition, is_base=True):
    """A condition that names one asset."""

    described = "an asset, a reference or an alias"

    def leaves(self) -> Iterator[Condition]:
        yield self

    def same_asset(self, other: "Leaf") -> bool:
        """Whether both name one asset, be it by different means."""
        return self == other

    def alternatives(self) -> Collection[frozenset[Condition]]:
        return [frozenset((self,))]


@dataclass(frozen=True, init=False)
class _Compound(Condition, is_base=True):
    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        if not conditions:
            raise DefinitionError(f"{type(self).__name__} needs at least one asset")
        flat: list[Condition] = []
        for condition in conditions:
            expect(condition, Condition, f"{type(self).__name__}'s argument")
            flat += condition.conditions if type(condition) is type(self) else (condition,)
        object.__setattr__(self, "conditions", tuple(flat))

    @classmethod
    def deserialize(cls, data: dict[str, object]) -> "_Compound":
        check_fields(cls, data)
        return cls(*from_plain(data.get("conditions", [])))

    def leaves(self) -> Iterator[Condition]:
        for condition in self.conditions:
            yield from condition.leaves()


class AssetAll(_Compound):
    """Every part must be satisfied; written `a & b`."""

    def alternatives(self) -> Collection[frozenset[Condition]]:
        found: Collection[frozenset[Condition]] = [frozenset()]
        for condition in self.conditions:
            found = _smallest(one | other for one, other in product(found, condition.alternatives()))
        return found


class AssetAny(_Compound):
    """One part is enough; written `a | b`."""

    def alternatives(self) -> Collection[frozenset[Condition]]:
        return _smallest(one for condition in self.conditions for one in condition.alternatives())
