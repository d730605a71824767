"""The command ``labelhedge``."""

import sys


def main() -> None:
    """Run the command line; a failure is one sentence on stderr and an exit code, never a traceback."""
    try:
        from labelhedge.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"labelhedge: {error.name} is not installed; get it with: pip install 'labelhedge[cli]'")
    from labelhedge.data import DataError

    try:
        app(prog_name="labelhedge")
    except (ValueError, ImportError) as error:
        print(f"labelhedge: {error}", file=sys.stderr)
        sys.exit(2)
    except (DataError, MemoryError, OSError) as error:
        print(f"labelhedge: {error}", file=sys.stderr)
        sys.exit(1)
