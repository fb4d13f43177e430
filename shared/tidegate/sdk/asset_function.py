"""Functions declared with `@asset`, as a worker calls them."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from tidegate.definitions.asset import Asset
from tidegate.definitions.decorators import AssetDefinition, MultiAssetDefinition
from tidegate.definitions.job import Job
from tidegate.sdk.execute import Function
from tidegate.sdk.run import Run


def function_of(definition: AssetDefinition | MultiAssetDefinition, declared: Iterable[Asset]) -> Function:
    """The definition's function as one of a run.

    `self` is the asset, `context` is `Run.context`, `outlet_events` those of the run. Any other parameter is the asset
    of that name: an outlet or a scheduled asset of its own job, else one of `declared`, else an Asset of just that
    name. A parameter with a default keeps that.
    """
    function = definition.function
    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is inspect.Parameter.empty
    ]

    def value(name: str, run: Run) -> Any:
        if name == "self":
            return definition
        if name == "context":
            return run.context()
        if name == "outlet_events":
            return run.outlet_events
        known = (*_assets_of(definition.job), *declared)
        return next((asset for asset in known if asset.name == name), None) or Asset(name)

    def call(run: Run) -> object:
        positional = [value(each.name, run) for each in parameters if each.kind is not each.KEYWORD_ONLY]
        named = {each.name: value(each.name, run) for each in parameters if each.kind is each.KEYWORD_ONLY}
        return function(*positional, **named)

    return call


def _assets_of(job: Job) -> Iterator[Asset]:
    condition = job.schedule.asset_condition if job.schedule is not None else None
    leaves = (*job.outlets, *job.inlets, *(condition.leaves() if condition is not None else ()))
    return (leaf for leaf in leaves if isinstance(leaf, Asset))
