"""What can go wrong with the emulator."""


class EmulatorError(Exception):
    """Something about the emulator failed; the text names it and says what would be right."""


class InstallError(EmulatorError):
    """The emulator's environment cannot be made."""


class StartError(EmulatorError):
    """The emulator did not come up, or an external one does not answer."""


class DeployError(EmulatorError):
    """The CDK command line failed to deploy or to destroy a stack."""
