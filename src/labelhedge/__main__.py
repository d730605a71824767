"""``python -m labelhedge``."""

from labelhedge.cli import main

main()
