"""The files for clusters: a schema of our own for the job of KubeRay, and the commands in both files."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest

import evaluate
from helpers import ROOT

FOLDER = ROOT / "examples" / "cluster"
QUANTITY = {"type": "string", "pattern": r"^\d+(m|Mi|Gi)?$"}  # Kubernetes' numbers
RESOURCES = {
    "type": "object",
    "required": ["cpu", "memory"],
    "properties": {"cpu": QUANTITY, "memory": QUANTITY},
}
CONTAINER = {
    "type": "object",
    "required": ["name", "image", "resources"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9-]{1,63}$"},
        "image": {"type": "string"},
        "resources": {"required": ["requests", "limits"], "additionalProperties": RESOURCES},
        "volumeMounts": {"type": "array", "items": {"required": ["name", "mountPath"]}},
    },
}
GROUP = {
    "required": ["rayStartParams", "template"],
    "properties": {
        "groupName": {"type": "string"},
        "replicas": {"type": "integer", "minimum": 1},
        "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
        "template": {
            "required": ["spec"],
            "properties": {"spec": {"required": ["containers"], "properties": {"containers": {"items": CONTAINER}}}},
        },
    },
}
RAY_JOB = {  # what KubeRay's custom resource RayJob asks for, as far as our file uses it
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayJob"},
        "metadata": {"required": ["name"]},
        "spec": {
            "required": ["entrypoint", "rayClusterSpec"],
            "additionalProperties": False,
            "properties": {
                "entrypoint": {"type": "string"},
                "shutdownAfterJobFinishes": {"type": "boolean"},
                "ttlSecondsAfterFinished": {"type": "integer"},
                "rayClusterSpec": {
                    "required": ["headGroupSpec", "workerGroupSpecs", "rayVersion"],
                    "additionalProperties": False,
                    "properties": {
                        "rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
                        "headGroupSpec": GROUP,
                        "workerGroupSpecs": {
                            "type": "array",
                            "items": {**GROUP, "required": [*GROUP["required"], "groupName", "replicas"]},
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture
def manifest():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((FOLDER / "kuberay.yaml").read_text())


def test_kuberay_accepts_the_manifest(manifest):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(manifest, RAY_JOB)
    manifest["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0  # Kubernetes wants strings
    with pytest.raises(jsonschema.ValidationError, match="0 is not of type 'string'"):
        jsonschema.validate(manifest, RAY_JOB)


def test_volumes_and_versions_of_the_manifest_agree(manifest):
    spec = manifest["spec"]["rayClusterSpec"]
    pod = spec["headGroupSpec"]["template"]["spec"]
    mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    pinned = re.search(r"^ray==(.*)$", (ROOT / "constraints-integrations.txt").read_text(), re.MULTILINE)[1]
    assert spec["rayVersion"] == pinned


@pytest.mark.parametrize("name", ["kuberay.yaml", "slurm.sh"])
def test_commands_have_options_that_exist(name, monkeypatch):
    """Both evaluate the same problem by the same methods."""
    import tyro

    text = re.sub(r"\\\n", " ", (FOLDER / name).read_text())
    command = re.search(r"routing-gym evaluate ([^#]*?trained)", text)[1]
    words = shlex.split(command.replace('"$address"', "head:6379"))
    args = tyro.cli(evaluate.Args, args=words)
    assert args.instances == "random/CVRP-100"
    assert args.methods == ("pyvrp:time_limit=5", "trained")
    assert args.executor == "ray"


def test_the_script_of_slurm_ends_if_a_node_does_not_start(tmp_path):
    """Stand-ins: `srun` fails, `ray` does nothing."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    for name, status in (("srun", 1), ("ray", 0)):
        (tmp_path / name).write_text(f"#!/bin/bash\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_NNODES": "4", "SLURM_CPUS_PER_TASK": "32"}
    command = ["bash", str(FOLDER / "slurm.sh")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "a node of the Ray cluster did not start" in done.stderr
