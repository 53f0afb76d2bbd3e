"""What one source gives, before it is known what counts: every value as a text, under its setting's name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainguard.settings.faults import SettingFault


@dataclass(frozen=True, slots=True)
class Source:
    """The settings of one rank.

    Attributes
    ----------
    name : str
        What a person calls it, for example ``stack default /TrainGuard/default-settings``.
    parameters : mapping of str to str
        Of rules: ``<Rule>_<parameter>``, as written.
    choices : mapping of str to str
        The others, by their names in ``choices.CHOICES``.
    origins : mapping of str to str
        Who gave a setting, where ``name`` does not say it well enough.
    faults : tuple of SettingFault
        What cannot even be taken for a setting.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[SettingFault, ...] = ()

    def origin_of(self, setting: str) -> str:
        """Return who gave the setting."""
        return self.origins.get(setting, self.name)
