"""What every service is told from outside: environment variables with the prefix `TIDEGATE_`."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidegate.core.rounds import HORIZON_MS

Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseSettings):
    """Settings of one service process. Frozen; units stand in the names."""

    model_config = SettingsConfigDict(env_prefix="TIDEGATE_", frozen=True, extra="ignore")

    kafka: str = Field("127.0.0.1:9092", description="bootstrap servers, host:port, comma separated")
    redis: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis URL, redis:// or rediss://; several nodes of a cluster may be named, host:port,host:port",
    )
    trust_redis_policy: bool = Field(
        False, description="go on where Redis does not tell its maxmemory-policy, which must be noeviction"
    )
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")] = Field(
        "tidegate", description="prefix of consumer groups, transactional ids and Redis keys"
    )
    instance_id: str = Field(
        "",
        description="a stable name of this replica, unique in its service: it then takes its partitions over at once",
    )
    teams: tuple[str, ...] = Field(
        (), description='teams whose topics asset-events.<team> ingest reads, as a JSON list: ["blue"]'
    )
    health_host: str = Field("127.0.0.1", description="where /healthz, /readyz and /metrics listen")
    health_port: Port = Field(0, description="0 picks a free port, which is logged")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    batch_records: Annotated[int, Field(ge=1, le=10_000)] = Field(2_000, description="records polled at once")
    poll_wait_ms: Annotated[int, Field(ge=1, le=5_000)] = Field(
        200, description="longest wait of an idle poll"
    )
    dispatch_cap: Annotated[int, Field(ge=1, le=10_000)] = Field(
        500,
        description="runs that the dispatcher looks at in one transaction, which must end within 10 s (B007)",
    )
    dedupe_horizon_s: Annotated[int, Field(ge=60)] = Field(
        HORIZON_MS // 1000, description="how long event ids and fired rounds are remembered (rule D5)"
    )
    clock_skew_limit_s: Annotated[float, Field(ge=0)] = Field(
        300,
        description="an event's own time may differ by so much from when the broker received it, unaudited (B097)",
    )
    session_timeout_ms: Annotated[int, Field(ge=1_000)] = Field(
        10_000, description="after this silence the broker gives a process's partitions to another"
    )
    stall_after_s: Annotated[float, Field(gt=0)] = Field(
        60, description="/healthz fails when the loop made no step for so long while records wait"
    )
    shutdown_deadline_s: Annotated[float, Field(gt=0)] = Field(
        10, description="a graceful stop takes at most this"
    )
