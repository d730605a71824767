"""Tables, figures and a page from results."""

from labelhedge.report.write import Report, write

__all__ = ["Report", "write"]
