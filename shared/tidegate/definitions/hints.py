"""What to do about the errors that code written for Airflow, or from memory, gives in a definitions file (rule D29)."""

import inspect
import re
from difflib import get_close_matches
from typing import Final

_AIRFLOW_NAMES: Final = {
    "DAG": "a DAG is a Job here, assigned to a name of the file",
    "dag": "a DAG is a Job here, assigned to a name of the file",
    "task": "tasks are functions of a worker here: @worker.job('...') of tidegate.sdk",
    "task_group": "tasks are functions of a worker here: @worker.job('...') of tidegate.sdk",
    "Dataset": "a Dataset is an Asset here",
    "DatasetAlias": "a DatasetAlias is an AssetAlias here",
    "AssetWatcher": "nothing is watched here: producers send events, with AssetEventProducer of tidegate.sdk",
    "BaseOperator": "operators are functions of a worker here: @worker.job('...') of tidegate.sdk",
}
"""What is meant by names of Airflow that are not Tidegate's."""

_ARGUMENTS: Final = {"dag_id": "id", "timetable": "schedule"}
"""Job's names for arguments of a DAG."""

_NO_NAME: Final = re.compile(r"cannot import name '(\w+)' from '(tidegate[\w.]*)'")
_NO_CALL: Final = re.compile(r"(\w+)\.__init__\(\) (?:got|takes|missing)")
_NO_ARGUMENT: Final = re.compile(r"unexpected keyword argument '(\w+)'")


def explained(error: Exception) -> str:
    """The error's type and message, and what to do where that can be told."""
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "airflow":
        text += ": import from tidegate what was imported from airflow.sdk"
    elif isinstance(error, ImportError) and (found := _NO_NAME.match(text)):
        text = f"{found[0]}: {_name_hint(found[1], found[2])}"
    elif isinstance(error, TypeError) and (found := _NO_CALL.match(text)):
        text += _call_hint(found[1], text)
    elif isinstance(error, TypeError) and text.startswith(
        "'Job' object does not support the context manager"
    ):
        text += ": a Job holds no tasks; write job = Job(...), and what it does as a function of a worker"
    return f"{type(error).__name__}: {text}"


def _name_hint(name: str, module: str) -> str:
    import tidegate

    if name in _AIRFLOW_NAMES:
        return _AIRFLOW_NAMES[name]
    if name in tidegate.__all__:
        return f"import {name} from tidegate"
    near = get_close_matches(name, tidegate.__all__)
    return f"use {', '.join(near)}" if near else f"{module} has nothing of this name"


def _call_hint(name: str, text: str) -> str:
    import tidegate

    kind = getattr(tidegate, name, None)
    if not isinstance(kind, type):
        return ""
    argument = _NO_ARGUMENT.search(text)
    if name == "Job" and argument and argument[1] in _ARGUMENTS:
        return f": it is called {_ARGUMENTS[argument[1]]} here"
    return f": {name} takes {', '.join(_parameters(kind)) or 'nothing'}"


def _parameters(kind: type) -> list[str]:
    """The parameters of a class; those that must be named have a '=' behind them."""
    found = []
    for each in inspect.signature(kind).parameters.values():
        if each.kind is each.KEYWORD_ONLY:
            found.append(f"{each.name}=")
        else:
            found.append(f"*{each.name}" if each.kind is each.VAR_POSITIONAL else each.name)
    return found
