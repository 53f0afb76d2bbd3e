"""Documents of settings in memory."""

import threading

from trainguard.adapters.memory.faults import Faults

DEFAULT_SETTINGS = "/TrainGuard/default-settings"
SETTINGS_PATH = "/TrainGuard/settings/"
DEPLOYED_DEFAULT = '{"evaluate": "all"}'
"""What a stack with a bucket of its own begins with."""


class MemorySettingDocuments:
    """Twin of SsmSettingDocuments; a test puts documents and removes them."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._documents = {DEFAULT_SETTINGS: DEPLOYED_DEFAULT}

    @property
    def default(self) -> str:
        """Name of the document that holds for every job."""
        return DEFAULT_SETTINGS

    @property
    def path(self) -> str:
        """Beginning of the names of the documents that a job may name, slash included."""
        return SETTINGS_PATH

    def read(self, name: str) -> str | None:
        """Return a document, or None when there is none."""
        with self._faults.call("SettingDocuments.read"), self._lock:
            return self._documents.get(name)

    def put(self, name: str, document: str) -> None:
        """Let the document be as given from now on."""
        with self._lock:
            self._documents[name] = document

    def remove(self, name: str) -> None:
        """Let there be no such document from now on."""
        with self._lock:
            self._documents.pop(name, None)
