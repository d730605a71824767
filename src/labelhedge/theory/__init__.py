"""Claims about losses, checked numerically: works on any loss, ours or a user's."""

from labelhedge.theory.certificate import Certificate, certify
from labelhedge.theory.subject import UnsoundLossError
from labelhedge.theory.verdict import Verdict

__all__ = ["Certificate", "UnsoundLossError", "Verdict", "certify"]
