"""The assets that definitions name, whoever names them."""

from collections.abc import Collection, Iterable, Mapping

from tidegate.definitions.asset import Asset
from tidegate.definitions.job import Job


def outlets_of(job: Job) -> list[Asset]:
    """Every asset that a job updates."""
    return [outlet for outlet in job.outlets if isinstance(outlet, Asset)]


def assets_of(job: Job) -> list[Asset]:
    """Every asset that a job names: those that it waits for, its inlets and its outlets."""
    condition = job.schedule.asset_condition if job.schedule is not None else None
    leaves = condition.leaves() if condition is not None else ()
    return [one for one in (*leaves, *job.inlets, *job.outlets) if isinstance(one, Asset)]


def known_assets(declared: Mapping[str, Asset], jobs: Iterable[Job]) -> dict[str, Asset]:
    """Every asset that is declared or that a job names, by name.

    Where several name one, the one that is declared itself comes first, then one that a job updates, since its producer
    says who may have its events (F22), then one that a job waits for; of several jobs the first by id.
    """
    found = dict(declared)
    in_order = sorted(jobs, key=lambda job: job.id)
    for named in (outlets_of, assets_of):
        for asset in (each for job in in_order for each in named(job)):
            found.setdefault(asset.name, asset)
    return found


def names_by_uri(assets: Mapping[str, Asset]) -> dict[str, tuple[str, ...]]:
    """The names of the assets that have a URI, in order; an event that says no more is about the first."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(assets):
        uri = assets[name].uri
        found[uri] = (*found.get(uri, ()), name)
    return found


def unknown_asset(name: str, aliases: Collection[str] = ()) -> str:
    """What the audit entry says of an event for an asset that no definition names, which may have come by aliases."""
    if aliases:
        return f"no definition names the asset {name!r}: only its aliases, {', '.join(aliases)}, can lead to runs"
    return f"no definition names the asset {name!r}: correct the name, or apply a definition that has it"
