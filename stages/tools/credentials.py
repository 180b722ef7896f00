"""Named secrets for tools: given one by one, shown nowhere, taken back at any time.

A tool is handed the ``Credentials`` it needs and no others, and asks for a secret at each use. They are in no record: their
``repr`` has names only, they cannot be pickled, and the episode stage blanks out of messages and errors every secret that its
episode has used, also where it is escaped. A credential is revoked for one run by a file in that run's folder, which is looked
for at each use, so that it takes effect at once and needs nobody's cooperation. What was derived from a secret, such as a token
in base64, is not recognised.
"""

import asyncio
import contextlib
import functools
import json
import os
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, quote_plus

import anyio

from stages.tools.audit import RUN_FOLDER
from stages.tools.tool import BrokenToolError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FOLDER = "revoked"
LOOK_S = 0.1
"""Seconds between two looks of a use that asked to be cut off."""


class RevokedError(BrokenToolError):
    """A credential was revoked: the episode ends as ``tool_error``, since that says nothing about the policy."""

    def __init__(self, name: str):
        super().__init__(f"the credential {name} was revoked")


class Credentials:
    """Secrets by name."""

    def __init__(self, secrets: Mapping[str, str]):
        """Keep secrets.

        Args:
            secrets: by name; names are made of letters, digits, ``.``, ``_`` and ``-``.

        Raises:
            ValueError: a name is not such, or a secret is empty; says no secret.
        """
        wrong = [name for name in secrets if not NAME.fullmatch(name)]
        empty = [name for name, secret in secrets.items() if not secret]
        if wrong or empty:
            raise ValueError(
                f"expected names of letters, digits and ._- with secrets that are not empty; got the names {wrong} and empty "
                f"secrets of {empty}, in Credentials(secrets); rename them, or set the secrets"
            )
        self._secrets = dict(secrets)

    @classmethod
    def from_environment(cls, **variables: str) -> Self:
        """Read environment variables: ``Credentials.from_environment(search="SEARCH_API_KEY")``.

        Args:
            variables: name of the variable by name of the credential.

        Raises:
            LookupError: names all variables that are not set.
        """
        absent = [variable for variable in variables.values() if not os.environ.get(variable)]
        if absent:
            raise LookupError(
                f"expected environment variables with secrets; got none for {', '.join(absent)}, in "
                "Credentials.from_environment; set them before the run"
            )
        return cls({name: os.environ[variable] for name, variable in variables.items()})

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a JSON file, an object of secrets by name, that nobody but its owner may read.

        Raises:
            PermissionError: others may read it.
            ValueError: it is no such object; says nothing of what is in it.
        """
        if path.stat().st_mode & 0o077:
            raise PermissionError(f"expected a file only its owner may read; got {path}, which others may; chmod 600 {path}")
        try:
            secrets = json.loads(path.read_bytes())
        except ValueError:
            secrets = None
        if not isinstance(secrets, dict) or not all(isinstance(secret, str) for secret in secrets.values()):
            raise ValueError(
                f'expected a JSON object of texts by name, such as {{"search": "..."}}; got something else, in {path}; '
                "rewrite it"
            )
        return cls(secrets)

    def only(self, *names: str) -> Self:
        """These and no others: what a tool is to be handed.

        Raises:
            LookupError: names all that are not here.
        """
        absent = [name for name in names if name not in self._secrets]
        if absent:
            raise _absent(absent, self.names)
        return type(self)({name: self._secrets[name] for name in names})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all, in order."""
        return tuple(sorted(self._secrets))

    def get(self, name: str) -> str:
        """A secret, to be used now and kept by nobody.

        Raises:
            LookupError: it is not among these.
            RevokedError: it was revoked in this run.
        """
        if name not in self._secrets:
            raise _absent([name], self.names)
        if revoked(name):
            raise RevokedError(name)
        secret = self._secrets[name]
        uses = _USES.get(None)
        if uses is not None:
            uses.secrets[secret] = name
            uses.names.add(name)
        return secret

    @contextlib.asynccontextmanager
    async def held(self, name: str) -> AsyncGenerator[str]:
        """A secret for a use that lasts: ``async with credentials.held("search") as secret: ...``, cut off when it is revoked.

        Raises:
            LookupError: it is not among these.
            RevokedError: it was revoked in this run, before or meanwhile.
        """
        secret = self.get(name)
        with anyio.CancelScope() as scope:
            watch = asyncio.create_task(_cut_off(scope, name))
            try:
                yield secret
            finally:
                watch.cancel()
        if scope.cancelled_caught:
            raise RevokedError(name)

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self.names)})"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"expected nothing that holds secrets; got {self!r}, in a pickle; make the credentials where they are used"
        )


async def _cut_off(scope: anyio.CancelScope, name: str) -> None:
    # A file, which another program makes, so there is nothing to be woken by.
    while not revoked(name):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    scope.cancel()


def _absent(names: list[str], known: tuple[str, ...]) -> LookupError:
    return LookupError(
        f"expected credentials among {', '.join(known) or 'none'}; got {', '.join(names)}, in Credentials; "
        "hand the tool those it needs"
    )


@dataclass(frozen=True)
class Uses:
    """What has been used.

    Attributes:
        secrets: of an episode so far, with the name of each. By secret: two tools may know different ones by one name.
        names: of one call of it.
    """

    secrets: dict[str, str]
    names: set[str] = field(default_factory=set[str])


_RUN: ContextVar[Path] = ContextVar("folder of the run")
_USES: ContextVar[Uses] = ContextVar("uses of credentials")


@contextlib.contextmanager
def revocations_in(run: Path) -> Generator[None]:
    """Heed, in a block, what is revoked for the run with this folder."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


@contextlib.contextmanager
def uses_into(uses: Uses) -> Generator[None]:
    """Write down, in a block and in tasks and threads started in it, what is used."""
    token = _USES.set(uses)
    try:
        yield
    finally:
        _USES.reset(token)


def revoked(name: str) -> bool:
    """Whether a credential was revoked for the run under way."""
    run = _RUN.get(None) or os.environ.get(RUN_FOLDER)
    return run is not None and (Path(run) / FOLDER / name).exists()


def revoke(run: Path, name: str) -> None:
    """Revoke a credential for a run, whether it is under way or will be resumed.

    Args:
        run: the run's folder.
        name: of the credential.

    Raises:
        ValueError: no credential can have this name.
        NotADirectoryError: there is no such folder.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits and ._-; got '{name}', in revoke(run, name); correct it")
    if not run.is_dir():
        raise NotADirectoryError(f"expected the folder of a run; got '{run}', which is none; name it as it was printed")
    (run / FOLDER).mkdir(exist_ok=True)
    (run / FOLDER / name).touch()


def blanked(text: str) -> str:
    """The text with the name of a credential in place of each secret that was used so far, where ``uses_into`` writes down.

    To be called before the text is cut, which could leave half a secret.
    """
    uses = _USES.get(None)
    if uses is None or not uses.secrets:
        return text
    # Longest first, since one may lie in another.
    written = ((form, name) for secret, name in uses.secrets.items() for form in _forms(secret))
    for form, name in sorted(written, key=lambda item: -len(item[0])):
        text = text.replace(form, f"[credential {name}]")
    return text


@functools.lru_cache(256)
def _forms(secret: str) -> frozenset[str]:
    """The secret as it may stand in a text: plain, in a URL, escaped as by ``repr`` or JSON, and so again, as JSON in JSON."""
    plain = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}
    once = {form for text in plain for form in _escaped(text)}
    return frozenset(plain | once | {form for text in once for form in _escaped(text)})


def _escaped(text: str) -> set[str]:
    # Which quotes repr escapes depends on those around the secret.
    written = {repr(text)[1:-1], ascii(text)[1:-1], repr(f'"{text}')[2:-1], ascii(f'"{text}')[2:-1]}
    written |= {repr(f"'{text}")[2:-1].removeprefix("'"), ascii(f"'{text}")[2:-1].removeprefix("'")}
    return written | {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}


def used_secrets() -> dict[str, str]:
    """What ``uses_into`` writes down here, to be shared by who writes down more; elsewhere an empty one."""
    uses = _USES.get(None)
    return {} if uses is None else uses.secrets


@contextlib.contextmanager
def blanked_errors() -> Generator[None]:
    """Raise, out of a block, errors whose text holds a secret that was used as errors that do not."""
    try:
        yield
    except Exception as error:
        text = blanked(str(error))
        if text == str(error):
            raise
        # Of another type where it is not one of ours: who knows what else the original carries.
        kind = BrokenToolError if isinstance(error, BrokenToolError) else RuntimeError
        raise kind(text) from None
