"""Find wrong labels.

Small networks, trained with several losses on different parts of the rows, predict the label of every row that they
have not learned from; a model of how labels go wrong makes of it the probability that the label is wrong.
"""

from labelhedge.audit._audit import Audit
from labelhedge.audit._features import Encoded, encode
from labelhedge.audit._find import find
from labelhedge.audit._suggest import Suggestion, suggest
from labelhedge.audit._table import Table, TableError, read_arrays, read_table

__all__ = [
    "Audit",
    "Encoded",
    "Suggestion",
    "Table",
    "TableError",
    "encode",
    "find",
    "read_arrays",
    "read_table",
    "suggest",
]
