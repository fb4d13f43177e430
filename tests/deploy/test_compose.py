"""deploy/compose.yaml and deploy/Dockerfile, held against what the programs need; no container engine is used."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.runtime.settings import Settings
from tidegate.runtime.supervisor import SERVICES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    return found


def test_every_service_runs_its_own_package_of_one_image(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"kafka", "redis", "topics", *SERVICES}
    for name in SERVICES:
        assert services[name]["command"] == ["python", "-m", f"tidegate_{name}"]
        assert (ROOT / "services" / f"tidegate_{name}" / "__main__.py").is_file()
    assert {services[name]["image"] for name in ("topics", *SERVICES)} == {"tidegate"}


def test_every_lasting_container_has_a_health_check_and_restarts(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name != "topics":
            assert service["healthcheck"]["test"], name
            assert service["restart"] == "unless-stopped"


def test_services_wait_for_topics_and_topics_for_kafka(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name in SERVICES:
        assert services[name]["depends_on"] == {
            "topics": {"condition": "service_completed_successfully"},
            "redis": {"condition": "service_healthy"},
        }
    assert services["topics"]["command"] == ["tidegate", "topics", "create"]
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert services["topics"]["restart"] == "no"


def test_settings_in_the_environment_are_known(compose: dict[str, Any]) -> None:
    known = {f"TIDEGATE_{name.upper()}" for name in Settings.model_fields}
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"TIDEGATE_\w+", dockerfile)) <= known
    for name in SERVICES:
        assert set(compose["services"][name]["environment"]) <= known


def test_redis_keeps_what_it_acknowledged(compose: dict[str, Any]) -> None:
    command = compose["services"]["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_offsets_outlive_every_log(compose: dict[str, Any]) -> None:
    from tidegate.contracts.topics import declared_topics

    longest = max(topic.retention for topic in declared_topics(4) if topic.retention is not None)
    minutes = int(compose["services"]["kafka"]["environment"]["KAFKA_OFFSETS_RETENTION_MINUTES"])
    assert minutes * 60 > longest.total_seconds()


def test_the_image_runs_without_root() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    users = re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE)
    assert users
    assert users[-1] not in ("root", "0")
