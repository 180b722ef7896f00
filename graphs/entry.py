"""Entry point of the ``headrace`` command: the doctor works where a package is missing, everything else needs them all."""

import sys

from graphs.commands.doctor import doctor


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["doctor"]:
        raise SystemExit(doctor(sys.argv[2:]))
    try:
        from graphs.cli import process
    except ImportError as error:
        sys.stderr.write(
            f"headrace: expected the packages it needs, got {type(error).__name__}: {error}; "
            "headrace doctor tells what to install\n"
        )
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    process()


if __name__ == "__main__":
    main()
