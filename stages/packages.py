"""Optional packages, imported when they are first used, with an error that says what to install.

Shared by every family that adapts a package it does not depend on; it knows none of them.
"""

import importlib
from types import ModuleType


class MissingPackageError(ImportError):
    """A package is needed that is not installed, or cannot be imported."""


def optional_package(module: str, extra: str, where: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: dotted name.
        extra: the extra of headrace that brings it.
        where: what needs it, for the error.

    Raises:
        MissingPackageError: it is not there, or its import fails.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"expected the package of {module!r}; got {type(error).__name__}: {error}, in {where}; "
            f"install it with: pip install 'headrace[{extra}]'"
        ) from error
