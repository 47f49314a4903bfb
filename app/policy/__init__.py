"""Who may: rules, what they demand of a caller, and the one function that decides.

Nothing here waits, reads a clock or knows a request: grants and an instant go in, a decision
comes out, the same for the list and for the call.
"""

from app.policy.decision import Decision, Demand
from app.policy.explain import Explanation, Line, RuleLine, explain
from app.policy.policy import Policy
from app.policy.rules import Own

__all__ = ["Decision", "Demand", "Explanation", "Line", "Own", "Policy", "RuleLine", "explain"]
