"""The files of contrib/ for schedulers can be read, have commands that the program takes, and are what docs/ show."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest
import yaml
from conftest import REPOSITORY

import longhaul

CONTRIB = REPOSITORY / "contrib"
BATCH = sorted((CONTRIB / "slurm").glob("*.sbatch"))
SUBMIT = sorted((CONTRIB / "htcondor").glob("*.sub"))
MANIFESTS = sorted((CONTRIB / "kubernetes").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGHAUL_QUEUE", "none/queue.db")


def _is_command_of_the_program(words: List[str]) -> bool:
    """Whether the program takes a command line with all its values, and only misses the queue or the source."""
    for option, value in zip(words, words[1:]):
        if option == "--files-from":
            Path(value).parent.mkdir(exist_ok=True)
            Path(value).write_bytes(b"a\0")
    done = subprocess.run([longhaul.find_binary(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    return True


def _settings(text: str) -> Dict[str, str]:
    """The settings of a submit file; lines of comments and the last line have none."""
    return dict(re.findall(r"^(\w+)\s*=\s*(.*)$", text, flags=re.M))


def _documents() -> List[Any]:
    return [document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text())]


def _pods() -> List[Any]:
    return [one["spec"]["template"]["spec"] for one in _documents() if one["kind"] in ("Deployment", "Job")]


@pytest.mark.parametrize("path", BATCH, ids=lambda path: path.name)
def test_a_batch_file_of_slurm_is_a_script_with_a_command_of_the_program(path: Any) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text()
    (command,) = re.findall(r'^"\$longhaul" (.*) &$', text, flags=re.M)
    defaults = {f"${name}": value for name, value in re.findall(r"^(\w+)=\$\{\w+:-(.*)\}$", text, flags=re.M)}
    words = [defaults.get(word, word) for word in shlex.split(command.replace('"$@"', ""))]
    assert _is_command_of_the_program(words)
    options = dict(re.findall(r"^#SBATCH (--[a-z-]+)(?:=(.*))?$", text, flags=re.M))
    assert options["--signal"] == "B:USR1@120" and "--requeue" in options and options["--open-mode"] == "append"
    # Slurm reads them up to the first command.
    assert text.index("\n#SBATCH --output") < text.index("\nset -u")


def test_the_batch_files_of_slurm_end_alike() -> None:
    ends = {
        re.sub(r'^"\$longhaul" .*|^#.*', "", text[text.index("\nchild=''") :], flags=re.M)
        for text in (path.read_text() for path in BATCH)
    }
    assert len(BATCH) == 2 and len(ends) == 1


@pytest.mark.parametrize("path", SUBMIT, ids=lambda path: path.name)
def test_a_submit_file_of_htcondor_has_a_command_of_the_program(path: Any) -> None:
    text = path.read_text()
    settings = _settings(text)
    command = re.sub(r"\$\((\w+)\)", lambda name: settings.get(name[1], "1"), settings["arguments"].strip('"'))
    assert _is_command_of_the_program(shlex.split(command))
    assert (settings["universe"], settings["kill_sig"]) == ("vanilla", "SIGTERM")
    assert text.rstrip().splitlines()[-1].startswith("queue")
    names = set(re.findall(r"\$\((\w+)\)", text)) - {"Process"}
    assert names <= set(settings) | set(re.findall(r"^queue (\w+) from", text, flags=re.M))
    # The exits that it holds are those that no later try mends, and it ends with the one that is no failure.
    again = {int(code) for code in re.findall(r"ExitCode =!= (\d+)", settings["on_exit_hold"])} - {0}
    assert again == {code for code, row in longhaul.EXITS.items() if row.resumable}
    assert re.findall(r"ExitCode =\?= (\d+)", settings["on_exit_remove"]) == ["0"]
    assert {"periodic_release", "job_max_vacate_time", "on_exit_hold_reason"} <= set(settings)


def test_htcondor_itself_reads_its_submit_files() -> None:
    htcondor: Any = pytest.importorskip("htcondor2", reason="the bindings of HTCondor are not here")
    for path in SUBMIT:
        submit = htcondor.Submit(path.read_text())
        assert submit["universe"] == "vanilla" and submit.getQArgs() is not None


def test_pods_are_movers_of_one_host_with_a_grace_and_without_privileges() -> None:
    pods = _pods()
    assert len(pods) == 2
    claims: Set[str] = {one["metadata"]["name"] for one in _documents() if one["kind"] == "PersistentVolumeClaim"}
    for pod in pods:
        assert pod["terminationGracePeriodSeconds"] >= 60 and pod["automountServiceAccountToken"] is False
        user = pod["securityContext"]
        assert user["runAsNonRoot"] and user["runAsUser"] == user["runAsGroup"] == user["fsGroup"] != 0
        assert user["fsGroupChangePolicy"] == "OnRootMismatch"
        (container,) = pod["containers"]
        assert container["command"] == ["longhaul"] and container["args"][:2] == ["job", "run"]
        assert all(isinstance(word, str) for word in container["args"])
        assert _is_command_of_the_program(container["args"])
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        volumes = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts) == set(volumes) and volumes["state"] in claims
        places = {entry["name"]: entry["value"] for entry in container["env"]}
        assert set(places) == {"XDG_STATE_HOME", "XDG_CONFIG_HOME"}
        assert all(place.startswith(mounts["state"] + "/") for place in places.values())


def test_a_fleet_has_a_queue_in_a_database_whose_password_is_a_secret(tmp_path: Path) -> None:
    (fleet,) = (one for one in _documents() if one["kind"] == "StatefulSet")
    pod, (mover, _) = fleet["spec"]["template"]["spec"], _pods()
    labels = fleet["spec"]["template"]["metadata"]["labels"]
    assert fleet["spec"]["selector"]["matchLabels"].items() <= labels.items()
    same = ("terminationGracePeriodSeconds", "automountServiceAccountToken", "securityContext")
    assert [pod[name] for name in same] == [mover[name] for name in same]
    (container,) = pod["containers"]
    assert container["securityContext"] == mover["containers"][0]["securityContext"]
    made = [longhaul.find_binary(), "key", "generate", "--identity", tmp_path / "owner"]
    environment = {name: value for name, value in os.environ.items() if name != "LONGHAUL_QUEUE"}
    owner = subprocess.run(made, env=environment, check=True, capture_output=True, text=True).stdout.strip()
    words = [owner if word == "lhk1:OWNERKEY" else word for word in container["args"]]
    assert words != container["args"] and _is_command_of_the_program(words)
    secrets = {entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in container["env"] if "valueFrom" in entry}
    assert set(secrets) == {"LONGHAUL_QUEUE", "PGPASSWORD"}
    assert {secret["name"] for secret in secrets.values()} == {"longhaul-queue"}
    (claim,) = fleet["spec"]["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {claim["metadata"]["name"], *(volume["name"] for volume in pod["volumes"])}
    places = [entry["value"] for entry in container["env"] if "value" in entry]
    assert len(places) == 2 and all(place.startswith(mounts["state"] + "/") for place in places)
    page = (CONTRIB / "kubernetes" / "README.md").read_text()
    assert f"manifests={mounts['manifests']}'" in page and "--from-literal=password=" in page


def test_a_fleet_of_htcondor_says_where_its_queue_is_and_no_password() -> None:
    settings = _settings((CONTRIB / "htcondor" / "fleet.sub").read_text())
    assert "requirements" not in settings and "LONGHAUL_QUEUE=$(url)" in settings["environment"]
    assert settings["url"].startswith("postgres://mover@") and "PGPASSFILE=" in settings["environment"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be the user of a pod")
def test_the_user_of_a_pod_can_keep_key_and_queue_on_its_volume() -> None:
    """A volume as Kubernetes hands it over: root's, and open to `fsGroup`."""
    (pod, _) = _pods()
    user, environment = pod["securityContext"]["runAsUser"], pod["containers"][0]["env"]
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        program, state, data = shutil.copy(longhaul.find_binary(), top), Path(top, "state"), Path(top, "data")
        state.mkdir()
        os.chown(state, 0, user)
        state.chmod(0o2775)
        data.mkdir(mode=0o755)
        (data / "a").write_text("a")
        places = {entry["name"]: entry["value"].replace("/state", str(state), 1) for entry in environment}

        def run(*words: Any) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, *words],
                cwd="/",
                env=places,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                user=user,
                group=user,
                extra_groups=[user],
            )

        made = run("key", "generate")
        steps = [
            ("key", "trust", "node.example", made.stdout.strip()),
            ("job", "add", "--name", "atlas", data, state / "to"),
            ("job", "plan", "atlas"),
            ("job", "run", "--drain"),
            ("job", "wait", "atlas"),
            ("key", "show"),
        ]
        for step in steps:
            done = run(*step)
            assert done.returncode == 0, f"{step}: {done.stderr}"
        assert (state / "to" / "data" / "a").read_text() == "a"
        # What `fsGroupChangePolicy: Always` would do at each start.
        (identity,) = Path(places["XDG_CONFIG_HOME"]).rglob("identity")
        identity.chmod(0o660)
        refused = run("key", "show")
        assert refused.returncode != 0 and "accessible by others" in refused.stderr


def test_the_deployment_has_one_pod_and_the_job_ends_by_exit_codes() -> None:
    (deployment,) = (one for one in _documents() if one["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 1 and deployment["spec"]["strategy"] == {"type": "Recreate"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (job,) = (one for one in _documents() if one["kind"] == "Job")
    (rule,) = (rule for rule in job["spec"]["podFailurePolicy"]["rules"] if rule["action"] == "FailJob")
    assert rule["onExitCodes"]["containerName"] == job["spec"]["template"]["spec"]["containers"][0]["name"]
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    fails = set(rule["onExitCodes"]["values"])
    assert fails == {code for code, row in longhaul.EXITS.items() if not row.resumable} - {0, 1, 141}
    (claim,) = (one for one in _documents() if one["kind"] == "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_page_on_replication_names_files_that_are_there_and_shows_lines_of_them() -> None:
    page = (REPOSITORY / "docs" / "REPLICATE.md").read_text()
    section = page[page.index("## Under a scheduler\n") :]
    section = section[: section.index("\n## ", 1)]
    for name in re.findall(r"contrib/[\w./-]+", section):
        assert (REPOSITORY / name).exists(), name
    files = {
        "SBATCH": BATCH,
        "replicas": [CONTRIB / "kubernetes" / "mover.yaml"],
        "kill_sig": SUBMIT,
    }
    blocks = re.findall(r"^```text\n(.*?)^```$", section, flags=re.M | re.S)
    assert len(blocks) == len(files)
    for block in blocks:
        (paths,) = (paths for mark, paths in files.items() if mark in block)
        for path in paths:
            lines = [line.strip() for line in path.read_text().splitlines()]
            assert [line for line in block.splitlines() if line not in lines] == [], path


@pytest.mark.parametrize("page", sorted(CONTRIB.glob("*/README.md")), ids=lambda page: page.parent.name)
def test_commands_of_the_pages_beside_the_files_are_ones_of_the_program(page: Any) -> None:
    for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), flags=re.M | re.S):
        for line in block.splitlines():
            words = re.search(r"(?:^|-- )longhaul (job .*)", line)
            if words:
                assert _is_command_of_the_program(shlex.split(words[1])), line
