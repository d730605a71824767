"""The paper's studies: each one a function that gives a figure, the data behind it and a paragraph of what it shows."""

from labelhedge.figures._study import Study
from labelhedge.figures.write import STUDIES, Written, write

__all__ = ["STUDIES", "Study", "Written", "write"]
