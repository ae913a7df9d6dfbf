"""Put the scripts that `routing-gym` runs into the wheel."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SCRIPTS = ("am_reinforce.py", "evaluate.py", "export_onnx.py", "solve.py")  # of routing_agents.cli.SCRIPTS


class ScriptsHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Copy them into the package; not for editable installations, which would keep copies that grow old."""
        if version == "standard":
            copies = {f"agents/{name}": f"routing_agents/scripts/{name}" for name in SCRIPTS}
            build_data["force_include"].update(copies)
