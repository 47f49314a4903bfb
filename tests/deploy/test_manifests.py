"""What orchestrators are given: Kubernetes' own schemas, and what no schema can say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml  # type: ignore[import-untyped]  # likewise

from app.configuration import load_settings
from app.settings import Settings
from tests.support.balancers import DEPLOY
from tests.support.server import ROOT

Manifest = dict[str, Any]
VERSIONS: Final = ("1.29", "1.31", "1.33", "1.35", "1.37")
FILES: Final = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUSTOMIZATION: Final = DEPLOY / "kustomization.yaml"
SLACK_S: Final = 10.0
"""Between the end of running calls and the moment at which a server would be killed."""


def documents(path: Path) -> Iterator[Manifest]:
    """The manifests of a file."""
    yield from yaml.safe_load_all(path.read_text("utf-8"))


ALL: Final = [each for path in FILES for each in documents(path)]


def the(kind: str, name: str = "mcp-tool-server") -> Manifest:
    """One manifest."""
    (found,) = (each for each in ALL if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def pod(name: str) -> Manifest:
    """What a deployment runs."""
    spec: Manifest = the("Deployment", name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> Manifest:
    """The one container of a deployment."""
    (found,) = pod(name)["containers"]
    return found  # type: ignore[no-any-return]


# -- Kubernetes -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_manifest_conforms_to_the_schema(path: Path, version: str) -> None:
    for manifest in documents(path):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_list_names_every_file_but_the_example() -> None:
    (listed,) = documents(KUSTOMIZATION)

    named = {DEPLOY / each for each in listed["resources"]}
    assert named == {path for path in FILES if ".example." not in path.name}
    for generator in listed["configMapGenerator"]:
        assert all((DEPLOY / each).is_file() for each in generator["files"])


@pytest.mark.parametrize("name", ["mcp-tool-server", "haproxy"])
def test_whatever_selects_pods_selects_these(name: str) -> None:
    labels = {"app.kubernetes.io/name": name}
    deployment = the("Deployment", name)["spec"]

    assert deployment["selector"]["matchLabels"] == labels
    assert deployment["template"]["metadata"]["labels"] == labels
    assert the("Service", name)["spec"]["selector"] == labels
    assert the("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == labels
    assert the("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"] == labels
    for constraint in pod(name)["topologySpreadConstraints"]:
        assert constraint["labelSelector"]["matchLabels"] == labels


@pytest.mark.parametrize("name", ["mcp-tool-server", "haproxy"])
def test_ports_and_probes_are_those_of_the_container(name: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(name)["ports"]}

    assert all(port["targetPort"] in ports for port in the("Service", name)["spec"]["ports"])
    probes = [value for key, value in container(name).items() if key.endswith("Probe")]
    assert probes
    assert all(probe["httpGet"]["port"] in ports for probe in probes)
    opened = {
        port["port"]
        for rule in the("NetworkPolicy", name)["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert opened == set(ports.values())


def test_probes_ask_what_they_are_for() -> None:
    server = container("mcp-tool-server")

    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert server["startupProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("name", ["mcp-tool-server", "haproxy"])
def test_pods_have_no_rights_that_they_do_not_need(name: str) -> None:
    spec, security = pod(name), container(name)["securityContext"]

    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert {"requests", "limits"} == set(container(name)["resources"])
    assert the("NetworkPolicy", name)["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_an_update_takes_no_server_before_there_is_another() -> None:
    for name in ("mcp-tool-server", "haproxy"):
        rolling = the("Deployment", name)["spec"]["strategy"]["rollingUpdate"]
        assert (rolling["maxUnavailable"], rolling["maxSurge"]) == (0, 1)
    scaler = the("HorizontalPodAutoscaler")["spec"]
    budget = the("PodDisruptionBudget")["spec"]["minAvailable"]
    assert scaler["minReplicas"] > budget >= 1
    assert "replicas" not in the("Deployment")["spec"], "the autoscaler decides"


def test_haproxy_has_room_for_as_many_servers_as_there_can_be() -> None:
    text = (DEPLOY / "haproxy" / "haproxy.cfg").read_text("utf-8")
    room = {int(each) for each in re.findall(r"server-template replica- 1-(\d+)", text)}

    # One more during an update.
    assert room == {20}
    assert the("HorizontalPodAutoscaler")["spec"]["maxReplicas"] < min(room)


def environment() -> dict[str, str]:
    """What the servers of the manifests are told."""
    data: dict[str, str] = the("ConfigMap")["data"]
    return data


def test_every_variable_is_one_that_the_server_reads(tmp_path: Path) -> None:
    environ = with_files(environment(), tmp_path)

    settings = load_settings(ROOT / "config.toml", environ=environ)
    assert settings.secrets.keys
    assert the("Service")["spec"]["ports"][0]["port"] == settings.server.port


def with_files(variables: dict[str, str], folder: Path) -> dict[str, str]:
    """The same, with files of keys that are there."""
    keys = folder / "keys"
    keys.write_text("k" * 44)
    return {**variables, "MCP__SECRETS__KEYS_FILE": str(keys)}


# -- grace ----------------------------------------------------------------------------


def end_s(settings: Settings) -> float:
    """Seconds from SIGTERM to the end of a server."""
    return settings.server.drain_window_s + settings.server.shutdown_grace_s


def test_kubernetes_waits_for_the_end_of_a_server(tmp_path: Path) -> None:
    settings = load_settings(ROOT / "config.toml", environ=with_files(environment(), tmp_path))

    grace = pod("mcp-tool-server")["terminationGracePeriodSeconds"]
    assert grace >= end_s(settings) + SLACK_S


def test_kubernetes_waits_for_the_end_of_haproxy() -> None:
    (hard_stop,) = (
        int(each["value"].removesuffix("s"))
        for each in container("haproxy")["env"]
        if each["name"] == "MCP_HARD_STOP"
    )
    (_, pause) = container("haproxy")["lifecycle"]["preStop"]["exec"]["command"]

    assert pod("haproxy")["terminationGracePeriodSeconds"] >= hard_stop + int(pause)


# -- compose --------------------------------------------------------------------------


COMPOSE: Final[Manifest] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: Final[Manifest] = COMPOSE["services"]


def test_compose_waits_for_the_end_of_a_server(tmp_path: Path) -> None:
    variables = {
        name: value.replace("${MCP_PUBLIC_URL:-http://127.0.0.1:${MCP_PORT:-8000}}", "http://x")
        for name, value in SERVICES["app"]["environment"].items()
    }
    settings = load_settings(
        ROOT / "config.toml",
        environ={
            **with_files(variables, tmp_path),
            "MCP__SERVER__HOST": "::",  # as the image has it, any address
        },
    )

    assert settings.server.fleet
    grace = int(SERVICES["app"]["stop_grace_period"].removesuffix("s"))
    assert grace >= end_s(settings) + SLACK_S
    hard_stop = SERVICES["haproxy"]["environment"]["MCP_HARD_STOP"]
    assert SERVICES["haproxy"]["stop_grace_period"] > hard_stop


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_bounded_and_has_no_rights(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert service["healthcheck"]["test"]
    assert service["logging"]["options"]["max-size"]
    assert "privileged" not in service


def test_only_the_balancer_is_published_and_on_loopback() -> None:
    published = {name for name, service in SERVICES.items() if "ports" in service}

    assert published == {"haproxy", "prometheus"}
    assert SERVICES["prometheus"]["profiles"] == ["metrics"]
    assert SERVICES["prometheus"]["ports"] == ["127.0.0.1:${MCP_PROMETHEUS_PORT:-9090}:9090"]
    assert SERVICES["haproxy"]["ports"] == ["${MCP_ADDRESS:-127.0.0.1}:${MCP_PORT:-8000}:8000"]
    assert SERVICES["app"]["deploy"]["replicas"] == 3
    assert COMPOSE["networks"]["state"]["internal"] is True
    assert SERVICES["valkey"]["networks"] == ["state"]


def test_prometheus_asks_the_servers_with_the_key_of_an_administrator() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "compose.yml").read_text("utf-8"))
    (job,) = config["scrape_configs"]
    own, app = SERVICES["prometheus"], SERVICES["app"]

    assert job["dns_sd_configs"][0]["names"] == ["app"]
    assert str(job["dns_sd_configs"][0]["port"]) == app["environment"]["MCP__ADMIN__PORT"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{own['secrets'][0]}"
    assert app["environment"]["MCP__ADMIN__KEYS_FILE"] == "/run/secrets/admin_keys"
    assert own["networks"] == ["watch"] and "watch" in app["networks"]
    assert (DEPLOY / "prometheus" / config["rule_files"][0]).is_file()


def test_a_rolling_update_leaves_servers_that_the_next_up_does_not_replace() -> None:
    script = (DEPLOY / "rolling-update.sh").read_text("utf-8")
    (line,) = [each for each in script.splitlines() if "compose up --detach" in each]

    assert "--no-recreate" in line
    # Compose would leave depends_on out of the hash that it keeps of the new containers.
    assert "--no-deps" not in line


def test_secrets_are_files_that_make_key_makes() -> None:
    made = (DEPLOY / "secrets.sh").read_text("utf-8") + (ROOT / "Makefile").read_text("utf-8")

    for secret in COMPOSE["secrets"].values():
        assert Path(secret["file"]).name in made
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or value.startswith("/run/secrets/")


def test_valkey_pushes_nothing_out_and_keeps_what_it_has() -> None:
    text = (DEPLOY / "valkey" / "valkey.conf").read_text("utf-8")
    lines = dict(line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#")

    assert lines["maxmemory-policy"] == "noeviction"
    assert lines["appendonly"] == "yes"
    limit = int(SERVICES["valkey"]["deploy"]["resources"]["limits"]["memory"].removesuffix("M"))
    assert limit >= 2 * int(lines["maxmemory"].removesuffix("mb"))
    assert "user default off ~* &* +@all" in (DEPLOY / "secrets.sh").read_text("utf-8")


def test_the_image_is_built_from_the_lock_and_runs_without_rights() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")

    assert "--require-hashes -r requirements/runtime.txt" in text
    assert "--require-hashes -r requirements/build.txt" in text
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["mcp-tool-server"\]$', text, re.MULTILINE)
    assert re.search(r'^CMD \["serve"\]$', text, re.MULTILINE)
