"""From the name of a model to where it lies: a Hugging Face folder, a GGUF file, or a repository of the Hugging Face Hub.

Names only: what lies there is read by ``stages``. A repository is fetched once and found in the local cache from then on; where
there is no network, what the cache holds is used.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FETCHED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt")
"""Files of a repository that are fetched: configuration, weights, tokenizer and chat template."""
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from.

    Attributes:
        name: as it was given.
        path: a folder with ``config.json``, or a GGUF file.
        commit: commit of the Hub's repository; ``None`` for what lies on disk.
    """

    name: str
    path: Path
    commit: str | None = None


def find_model(name: str | None, revision: str | None, setting: str) -> ModelSource:
    """Look a model up, and fetch it where it is on the Hub and not in the cache.

    Args:
        name: a folder, a file or ``owner/name``.
        revision: commit, branch or tag on the Hub; ``None`` for its main branch.
        setting: name of the setting, as on the command line, for the message of an error.

    Raises:
        ValueError: there is no such model, or it is neither here nor can be fetched.
    """
    if name is None:
        raise ValueError(
            f"expected a pretrained model, got none, in {setting}; pass --{setting} FOLDER, FILE.gguf or OWNER/NAME"
        )
    path = Path(name).expanduser()
    if path.exists():
        return _on_disk(name, path, revision, setting)
    if name.endswith(".gguf") or not _REPOSITORY.fullmatch(name):
        raise ValueError(
            f"expected a folder, a .gguf file or OWNER/NAME of the Hugging Face Hub, got '{name}', which is none, in "
            f"{setting}; check the path"
        )
    return _on_hub(name, revision or "main", setting)


def _on_disk(name: str, path: Path, revision: str | None, setting: str) -> ModelSource:
    if path.is_dir() and not (path / "config.json").is_file():
        raise ValueError(
            f"expected a Hugging Face folder, got '{name}', which has no config.json, in {setting}; "
            "name the folder that holds the config.json, or the .gguf file itself"
        )
    if revision is not None:
        raise ValueError(
            f"expected a revision only with a model of the Hugging Face Hub, got '{revision}' for '{name}', which is on disk, "
            f"in {setting}; leave it out"
        )
    return ModelSource(name, path)


def _on_hub(name: str, revision: str, setting: str) -> ModelSource:
    # Takes a while to import, and most runs do without.
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(FETCHED)))
    except errors.GatedRepoError as error:
        raise _absent(name, revision, setting, "terms that must be accepted", "accept them on its page, and log in") from error
    except errors.RepositoryNotFoundError as error:
        raise _absent(name, revision, setting, "no such repository", "check the name; log in for a private one") from error
    except errors.RevisionNotFoundError as error:
        raise _absent(name, revision, setting, "no such revision", "name a branch, a tag or a commit of it") from error
    except (errors.HFValidationError, OSError) as error:
        raise _absent(
            name,
            revision,
            setting,
            f"no folder of this name, nothing whole in the local cache, and no way to fetch it ({type(error).__name__})",
            "fetch it where there is a network and copy the cache, or name a folder",
        ) from error
    if not (folder / "config.json").is_file():
        raise _absent(name, revision, setting, "a repository without config.json", "use one with safetensors weights")
    # The cache has a folder for each commit, under its hash.
    return ModelSource(name, folder, commit=folder.name)


def _absent(name: str, revision: str, setting: str, got: str, remedy: str) -> ValueError:
    return ValueError(f"expected the model {name} at revision '{revision}', got {got}, in {setting}; {remedy}")
