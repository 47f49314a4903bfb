"""Who may administer: holders of keys that open nothing else."""

from app.auth.api_keys import ApiKeys, all_api_keys
from app.auth.problems import UnusableFile
from app.settings import AdminSettings


def administrators(settings: AdminSettings, previous: ApiKeys | None = None) -> ApiKeys:
    """The keys of ``[admin]``, those of its file among them.

    Args:
        previous: Those before a change of the settings.

    Raises:
        UnusableFile: ``keys_file`` cannot be used.
    """
    keys = all_api_keys(settings.keys, settings.keys_file, ())
    for key in keys:
        if key.has_grants:
            raise UnusableFile(
                f"{settings.keys_file}: the key {key.id} has grants, which rules about tools look "
                "at; a key of an administrator has id, hash and expires_at alone"
            )
    return ApiKeys(keys, previous=previous)
