"""What every section of the settings is, and how a rule between its settings is told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SettingError(ValueError):
    """A rule between settings of a section is broken; ``key`` is the one to change."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


class Section(BaseModel):
    """One table of the file: unknown keys are refused, nothing changes after it was checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)
