"""Definitions as a hostile or careless person writes them, in JSON and YAML, through what `tidegate apply` does.

Each is either accepted, and then says the same after a round trip, or refused with a message that names the place.
Nothing may raise anything else, take longer than some seconds of processor time, or need more than bounded memory.
"""

import asyncio
import contextlib
import faulthandler
import io
import json
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, Final

import yaml

from tests.unit.test_hostile_definitions import HOSTILE, NEEDED
from tidegate.cli import app
from tidegate.contracts.definitions import Installation
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import from_plain, plain, type_registry
from tidegate.definitions import Asset, Definitions, Job, load_definitions
from tidegate.runtime.applying import planned
from tidegate.runtime.embedded import embedded_blocking
from tidegate.runtime.installing import install

CPU_S: Final = 5.0
WALL_S: Final = 300.0
MEMORY: Final = 1 << 30
"""Bytes that all of them together may add."""
LONGEST_MESSAGE: Final = 1_500
BY_COMMAND: Final = 50
"""Every so many go through the real command too."""

_MOST_YAML: Final = 200_000
"""Bytes: PyYAML reads some hundred thousand a second."""
SAID: Final = 250

STRANGE: Final = (
    *(
        "Europe/Atlantis",
        "../../../etc/passwd",
        "/etc/localtime",
        "UTC\0",
        "posixrules",
        "GMT+25",
        "x" * 5_000,
    ),
    *(
        "* * * * * * *",
        "61 * * * *",
        "0 0 31 2 *",
        "*/0 * * * *",
        "0-99999999 * * * *",
        "@reboot",
        "@daily ",
        "H * * * *",
    ),
    *(
        ",".join(["0"] * 50_000) + " * * * *",
        "* " * 5_000,
        "0 0 L 2 1#5",
        "0 0 29 2 1",
        "MON * * * *",
        "\u0661 * * * *",
    ),
    *(
        "os.system",
        "subprocess.Popen",
        "builtins.eval",
        "tidegate.cli.app.main",
        "__main__",
        "type",
        "object",
        "Plain",
    ),
    *(
        "%" * 10_001,
        "%Y" * 5_000,
        "%-d",
        "%z%Z%c",
        "{quarter}" * 1_000,
        "%Q",
        "\ud800",
        "a.b",
        "a_b",
        "-",
        ".",
        "..",
    ),
    *(
        10**9,
        10**18,
        10**400,
        -(10**9),
        2**63,
        1e308,
        float("-inf"),
        ["us"] * 20_000,
        {"a": 1, "b": {}},
    ),
    *(
        {"seconds": 10**400},
        {"seconds": -(10**18)},
        {"relativedelta": {"months": 10**30}},
        {"relativedelta": {"year": 0}},
    ),
    *(
        {"instant": "2026-01-01T00:00:00+99:00"},
        {"seconds": 1, "instant": "x"},
        {"type": "RollingWindow", "size": 10**9},
    ),
    *(
        {"type": "os.system", "command": "true"},
        {"__reduce__": ["os.system", ["true"]]},
        {"py/object": "os.system"},
    ),
)

HOSTILE_YAML: Final = (
    *(
        "!!python/object/apply:os.system ['exit 1']",
        "!!python/name:builtins.eval",
        "!!python/module:os",
        "!!binary 'eA=='",
    ),
    *(
        "!!timestamp 2026-13-45",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!int x",
        "!!float x",
        "!!bool x",
        "!x {}",
        "!!null x",
    ),
    *(
        "&a [*a]",
        "&a {b: *a}",
        "*nowhere",
        "&a a\n*a",
        "{? [a, b] : c}",
        "{? {a: 1} : c}",
        "? - a\n: b",
        "{<<: 1}",
    ),
    *(
        "{<<: {type: Job, id: x}, id: y}",
        "{<<: [&a {b: 1}, *a]}",
        "a: |\n  x\n b",
        "- a\n b: c",
        "%YAML 9.9\n---\na",
        "--- a\n--- b",
    ),
    *(
        "\t- a",
        "a: b: c",
        "[a, b",
        "{a",
        '"a',
        "'a",
        "\0",
        "\x07",
        "\ufeffa: b",
        "a\u2028b: c",
        "...",
        "---",
        "#",
        "@a",
        "`a`",
    ),
    *(
        "9" * 5_000,
        "-" + "9" * 20_000,
        "1e999",
        "0x1F",
        "0o17",
        "1_000",
        "190:20:30",
        ".inf",
        ".nan",
        "=",
        "~",
        "yes",
        "2026-03-10",
    ),
    *(
        "[" * 3_000,
        "- " * 3_000 + "a",
        "{a: " * 1_500 + "1" + "}" * 1_500,
        "? " * 2_000 + "a",
        "a: " + "x" * 200_000,
    ),
)


def laughs(levels: int, width: int, inside: str = "ha") -> str:
    """A YAML document of few lines that stands for `width ** levels` values."""
    lines = [f"a0: &a0 [{', '.join([inside] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


# ---- well-formed definitions ----


def _asset(dice: Random) -> dict[str, Any]:
    more: list[dict[str, Any]] = [
        {},
        {"uri": "s3://bucket/" + dice.choice("xyz")},
        {"group": "g", "extra": {"a": [1, None]}},
        {"access_control": {"type": "AssetAccessControl", "producer_teams": ["blue"]}},
    ]
    return {"type": "Asset", "name": dice.choice("abcdef"), **dice.choice(more)}


def _condition(dice: Random, depth: int = 0) -> dict[str, Any]:
    kind = dice.randrange(8) if depth < 3 else 0
    if kind == 5:
        return {"type": "AssetAlias", "name": dice.choice("uvw")}
    if kind == 6:
        return dice.choice(
            ({"type": "AssetNameRef", "name": "a"}, {"type": "AssetUriRef", "uri": "s3://bucket/x"})
        )
    if kind == 7:
        inner = [_condition(dice, depth + 1) for _ in range(dice.randint(1, 3))]
        return {"type": dice.choice(("AssetAll", "AssetAny")), "conditions": inner}
    return _asset(dice)


_PERIODS: Final = ("Hour", "Day", "Week", "Month", "Quarter", "Year")


def _temporal(dice: Random) -> dict[str, Any]:
    more: list[dict[str, Any]] = [
        {},
        {"timezone": "Europe/Berlin"},
        {"input_format": "%Y-%m-%dT%H:%M:%S%z"},
        {"output_format": "%Y"},
    ]
    return {"type": f"StartOf{dice.choice(_PERIODS)}Mapper", **dice.choice(more)}


def _policy(dice: Random) -> dict[str, Any]:
    deadline = {"type": "Deadline", "after": {"seconds": 3600}, "then": dice.choice(("fire", "fail", "drop"))}
    more: dict[str, Any] = dice.choice(({}, {"deadline": deadline}))
    return dice.choice(
        ({"type": "WaitForAll", **more}, {"type": "MinimumCount", "n": dice.choice((1, 2, -1)), **more})
    )


def _mapper(dice: Random, depth: int = 0) -> dict[str, Any]:
    kind = dice.randrange(8) if depth < 2 else dice.randrange(3)
    if kind == 0:
        return dice.choice(
            ({"type": "IdentityMapper"}, {"type": "AllowedKeyMapper", "allowed_keys": ["us", "eu"]})
        )
    if kind == 1:
        return {"type": "FixedKeyMapper", "downstream_key": "all"}
    if kind == 2:
        return _temporal(dice)
    if kind == 3:
        return {"type": "ChainMapper", "mappers": [_mapper(dice, depth + 1), _mapper(dice, depth + 1)]}
    if kind == 4:
        return {
            "type": "ProductMapper",
            "mappers": [_mapper(dice, depth + 1), _temporal(dice)],
            "delimiter": "|",
        }
    period = dice.choice(_PERIODS)
    temporal = {"type": f"StartOf{period}Mapper"}
    window = {"type": f"{period}Window", "direction": dice.choice(("forward", "backward"))}
    if kind == 5:
        return {"type": "FanOutMapper", "upstream_mapper": temporal, "window": window}
    if kind == 6:
        segments = {"type": "SegmentWindow", "segments": ["us", "eu", "ap"]}
        return {
            "type": "RollupMapper",
            "upstream_mapper": {"type": "FixedKeyMapper", "downstream_key": "all"},
            "window": segments,
        }
    windows = (window, {"type": "RollingWindow", "size": dice.randint(1, 30), "unit": period.lower()})
    return {
        "type": "RollupMapper",
        "upstream_mapper": temporal,
        "window": dice.choice(windows),
        "wait_policy": _policy(dice),
    }


def _job(dice: Random) -> dict[str, Any]:
    schedules: list[Callable[[], dict[str, Any]]] = [
        lambda: {
            "type": "PartitionedAssetTimetable",
            "assets": _condition(dice),
            "default_partition_mapper": _mapper(dice),
        },
        lambda: {"type": "AssetTriggeredTimetable", "assets": _condition(dice)},
        lambda: {
            "type": "CronPartitionTimetable",
            "crons": ["0 3 * * *", "@hourly"],
            "timezone": "America/New_York",
        },
    ]
    schedule = schedules[dice.choice((0, 0, 0, 0, 1, 2))]()
    more: list[dict[str, Any]] = [
        {},
        {"inlets": [_asset(dice)], "outlets": [_asset(dice), {"type": "AssetAlias", "name": "u"}]},
        {"team": "blue", "description": "x"},
        {"run_commands_topic": "commands.x"},
        {"start_date": {"instant": "2026-03-10T09:00:00+00:00"}, "catchup": True},
    ]
    return {"type": "Job", "id": f"job{dice.randrange(20)}", "schedule": schedule, **dice.choice(more)}


# ---- what is wrong with them ----


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(tree, dict | list):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree[:10]):
            yield from _places(value, (*path, name))


def _mutate(dice: Random, tree: Any) -> Any:
    """Change one place in a tree."""
    places = list(_places(tree))
    if not places:
        return dice.choice(HOSTILE)
    if len(places) > 5_000:
        return tree
    *way, last = dice.choice(places)
    owner = tree
    for name in way:
        owner = owner[name]
    value = owner[last]
    match dice.randrange(12):
        case 0 | 1 | 2:
            owner[last] = deepcopy(dice.choice(HOSTILE))
        case 3 | 4:
            owner[last] = deepcopy(dice.choice(STRANGE))
        case 5:
            other = dice.choice(sorted(type_registry))
            owner[last] = {"type": other, **deepcopy(NEEDED.get(other, {}))}
        case 6:
            del owner[last]
        case 7:
            if isinstance(owner, dict):
                owner[
                    dice.choice(
                        (
                            str(last)[:-1],
                            str(last).upper(),
                            "type",
                            "x" * 3_000,
                            "",
                            "__class__",
                            "\ud800",
                            "extra",
                        )
                    )
                ] = owner.pop(last)
        case 8:
            if isinstance(owner, dict):
                owner[dice.choice(("nope", "\0", "max_downstream_keys", "direction", "deadline"))] = deepcopy(
                    dice.choice(HOSTILE)
                )
        case 9:
            most = 200_000 // len(repr(value)) + 1
            owner[last] = [deepcopy(value) for _ in range(min(most, dice.choice((0, 2, 30, 500))))]
        case 10:
            for _ in range(dice.choice((1, 2, 50, 400))):
                value = dice.choice(
                    (
                        [value],
                        {"type": "AssetAll", "conditions": [value]},
                        {"type": "ChainMapper", "mappers": [value]},
                    )
                )
            owner[last] = value
        case 11:
            owner[last] = deepcopy(tree if dice.random() < 0.5 else value)
    return tree


def text_of(seed: int, number: int) -> tuple[str, bytes]:
    """The suffix and the content of one definitions file."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # for what is nested deeply; the code under test has the usual limit
    try:
        return _text_of(Random(f"{seed}-{number}"))
    finally:
        sys.setrecursionlimit(limit)


def _text_of(dice: Random) -> tuple[str, bytes]:
    count = dice.choice((1, 1, 1, 2, 3))
    tree: Any = [_job(dice) if dice.random() < 0.85 else _asset(dice) for _ in range(count)]
    if count == 1 and dice.random() < 0.5:
        (tree,) = tree
    if dice.random() < 0.85:
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            tree = _mutate(dice, tree)
    is_yaml = dice.random() < 0.5
    text = _yaml(dice, tree) if is_yaml else json.dumps(tree, ensure_ascii=dice.random() < 0.5)
    raw = text.encode("utf-8", "surrogatepass")
    if dice.random() < 0.15:
        raw = _spoiled(dice, raw)
    if is_yaml:
        return dice.choice((".yaml", ".yml")), raw[:_MOST_YAML]
    return ".json", raw


def _yaml(dice: Random, tree: Any) -> str:
    odd = dice.random()
    if odd < 0.08:
        return laughs(*dice.choice(((3, 10), (9, 9), (30, 2), (200, 2), (6, 40))))
    if odd < 0.12:
        first, *rest = laughs(
            *dice.choice(((9, 9), (30, 2))),
            dice.choice(("ha", "{type: DayWindow}", "{type: Asset, name: a}")),
        ).split("\n")
        field = dice.choice(("schedule", "inlets", "id", "team", "extra"))
        lines = [f"- {first.split(': ', 1)[1]}", *(f"- {each.split(': ', 1)[1]}" for each in rest)]
        return "\n".join([*lines, f"- {{type: Job, id: j, {field}: *a{len(rest)}}}"])
    try:
        text: str = yaml.safe_dump(
            tree, allow_unicode=dice.random() < 0.5, default_flow_style=dice.random() < 0.3
        )
    except (yaml.YAMLError, RecursionError):
        text = json.dumps(tree)
    if odd < 0.4:
        at = text.find(": ", dice.randrange(len(text)))
        end = text.find("\n", at)
        if 0 <= at < end:
            text = f"{text[: at + 2]}{dice.choice(HOSTILE_YAML)}{text[end:]}"
    elif odd < 0.5:
        text = dice.choice(HOSTILE_YAML)
    return text


def _spoiled(dice: Random, raw: bytes) -> bytes:
    at = dice.randrange(len(raw) + 1)
    return dice.choice(
        (
            raw[:at],
            raw[:at] + bytes([dice.randrange(256)]) + raw[at + 1 :],
            raw[:at]
            + dice.choice((b"\0", b"\xff", b"\xed\xa0\x80", b"\t", b"{", b"]", b'"', b": ", b"&a ", b"*a "))
            + raw[at:],
            raw + raw,
            b"\xef\xbb\xbf" + raw,
            raw.decode("utf-8", "replace").encode("utf-16"),
            b"",
            raw.replace(b"type", b"Type", 1),
        )
    )


# ---- what becomes of them ----


class TooSlowError(BaseException):
    """An item needed more processor time than it may; no handler of the code under test catches it."""


@contextmanager
def watched() -> Iterator[None]:
    """Raises TooSlowError after CPU_S seconds of processor time; where even that helps nothing, the process ends."""

    def stop(*_: object) -> None:
        raise TooSlowError(f"needed more than {CPU_S:g} s of processor time")

    faulthandler.dump_traceback_later(WALL_S, exit=True)
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        faulthandler.cancel_dump_traceback_later()


def check(path: Path) -> tuple[str, str]:
    """("accepted", "") or ("refused", why); whatever else happens is raised."""
    definitions = load_definitions(path, refuse_singly=True)
    _effects(definitions)
    if definitions.refused:
        return "refused", definitions.refused[0].reason
    return "accepted", ""


def _effects(definitions: Definitions) -> None:
    """What `apply_definitions` does before it writes anything."""
    planned(definitions, {}, {}, Installation(partitions=2, shards=4))
    every: list[Job | Asset] = [*definitions.jobs, *definitions.assets]
    for one in every:
        written = json.dumps(plain(one), allow_nan=False)
        assert from_plain(json.loads(written)) == one, f"{written[:300]} is read back as something else"


def problem_of(path: Path) -> tuple[str, str | None]:
    """What became of a file, and what is wrong with that."""
    try:
        with watched():
            what, reason = check(path)
    except (DefinitionError, DefinitionTypeError) as error:
        what, reason = "refused", str(error)
    except MemoryError:
        return "failed", "needed too much memory"
    except (Exception, TooSlowError) as error:
        return "failed", f"{type(error).__name__}: {str(error)[:300]}"
    if what == "refused":
        if not names_place(reason, path):
            return what, f"the message names no place: {reason[:300]}"
        if len(reason) > LONGEST_MESSAGE:
            return what, f"the message has {len(reason)} characters: {reason[:300]}"
    return what, None


def names_place(reason: str, path: Path) -> bool:
    return str(path) in reason or any(
        name in reason for name in ("Job.id ", "job '", 'job "', "asset '", 'asset "')
    )


def by_command(kafka: str, path: Path) -> str | None:
    """What is wrong with how `tidegate apply` ends on a file; runs in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["tidegate", "apply", str(path), "--kafka", kafka]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            app.main()
        code: object = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException as error:
        return f"the command raised {type(error).__name__}: {str(error)[:300]}"
    finally:
        sys.argv = before
    said = out.getvalue() + err.getvalue()
    if code not in (0, 1, 2) or "Traceback" in said:
        return f"the command ended with {code}: {said[-500:]}"
    if code and "error: " not in said and "refused: " not in said:
        return f"the command ended with {code} without a reason: {said[-500:]}"
    return None


def check_all(folder: Path, seed: int, count: int) -> tuple[str, Counter[str], list[str]]:
    """The last line, counts and problems of `count` definitions files of a seed."""
    counted: Counter[str] = Counter()
    problems: list[str] = []
    with embedded_blocking(folder / "broker") as broker:
        asyncio.run(install(broker.kafka, Installation(partitions=2, shards=4)))
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_AS, (_used() + MEMORY, resource.RLIM_INFINITY))
        for number in range(count):
            suffix, raw = text_of(seed, number)
            path = folder / f"definitions{suffix}"
            path.write_bytes(raw)
            what, problem = problem_of(path)
            if problem is None and number % BY_COMMAND == 0:
                counted["by the command"] += 1
                problem = by_command(broker.kafka, path)
            counted[what] += 1
            if problem is not None:
                problems.append(f"number {number}: {problem}\n    {raw[:400]!r}")
                print(f"PROBLEM {problems[-1]}", flush=True)
            if (number + 1) % SAID == 0:
                print(f"{number + 1} definitions, {process_time():.0f} s of processor time", flush=True)
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) // 1024
    line = f"definitions={count} accepted={counted['accepted']} refused={counted['refused']} problems={len(problems)}"
    return f"{line} grown_mib={grown_mib}", counted, problems


def _used() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
