"""Plans: a pipeline unfolded, checked and cut into groups before anything runs."""

from tamis.plan.graph import END, Vertex
from tamis.plan.plan import Group, Plan, make_plan

__all__ = ["END", "Group", "Plan", "Vertex", "make_plan"]
