"""Rubrics: rewards composed of parts that can be looked at one by one."""

from importlib import import_module

from ... import _missing

_SOURCES = {
    "Rubric": "base",
    "Sequential": "containers",
    "Gate": "containers",
    "WeightedSum": "containers",
    "RubricList": "containers",
    "RubricDict": "containers",
    "TrajectoryRubric": "trajectory",
    "ExponentialDiscountingTrajectoryRubric": "trajectory",
    "LLMJudge": "llm_judge",
}
__all__ = list(_SOURCES)


def __getattr__(name):
    if name not in _SOURCES:
        raise _missing.name(__name__, name)
    value = getattr(import_module("." + _SOURCES[name], __name__), name)
    globals()[name] = value
    return value
