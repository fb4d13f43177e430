"""Normal forms of well-known schemes, as Airflow's providers have them; `use_uri_handlers` switches them on."""

from urllib.parse import SplitResult

from tidegate.definitions.uris import uri_handlers

POSTGRES_PORT = 5432


def postgres(parts: SplitResult) -> SplitResult:
    """`postgres://host:5432/database/schema/table`, also for the scheme `postgresql` and without the port."""
    if not parts.netloc:
        raise ValueError("it needs a host")
    if len(parts.path.split("/")) != 4:
        raise ValueError("it needs a database, a schema and a table")
    netloc = parts.netloc if parts.port is not None else f"{parts.netloc.rstrip(':')}:{POSTGRES_PORT}"
    return parts._replace(scheme="postgres", netloc=netloc)


def use_uri_handlers(*schemes: str) -> None:
    """Normalise the URIs of these schemes; of all that are known here where none is named."""
    known = {"postgres": postgres, "postgresql": postgres}
    uri_handlers.update({scheme: known[scheme] for scheme in schemes or known})
