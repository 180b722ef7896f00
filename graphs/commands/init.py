"""``headrace init FOLDER``: writes a task file, a tool, an environment, a graph and a test to start from.

They are the files of the folder ``starter``, as they are.
"""

from collections.abc import Sequence
from pathlib import Path

_STARTER = Path(__file__).parents[1] / "starter"


def start_folder(folder: Path) -> Sequence[Path]:
    """Write the files.

    Args:
        folder: where; made where it is missing.

    Returns:
        What was written.

    Raises:
        FileExistsError: one of the files is there; nothing is written.
        NotADirectoryError: it is a file.
        OSError: nothing can be written there.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"expected a folder to write to, got '{folder}', which is a file, in init; name another")
    sources = sorted(file for file in _STARTER.iterdir() if file.suffix in (".py", ".jsonl"))
    there = [file.name for file in sources if (folder / file.name).exists()]
    if there:
        raise FileExistsError(f"expected a folder without {', '.join(there)}, got '{folder}', in init; name a new one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in sources:
            (folder / file.name).write_bytes(file.read_bytes())
    except OSError as error:
        told = f"expected a folder to write to, got '{folder}': {error.strerror}, in init; name another"
        raise type(error)(told) from error
    return [folder / file.name for file in sources]
