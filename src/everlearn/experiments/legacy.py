"""Records of the first format, with one name for a method and its weighting: still read and run again.

{"method": "der+++consolidate", "stream": "cifar10", "memory": 200, …, "options": {"weights": [1, 0.2, 0.5]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everlearn import registry
from everlearn.errors import BadInput
from everlearn.spec import options_of


def is_old(document: Mapping[str, Any]) -> bool:
    return isinstance(document["method"], str)


def settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """What Experiment.of takes, of an old record; what it does not say is as in the table of defaults."""
    if "object" in document["options"] or " " in (document["network"] or ""):
        raise BadInput("the record is of a method or network object; only the script that made it can run it again")
    method, weighting = registry.parts(document["method"])
    plain = {k: v for k, v in document.items() if k not in ("method", "content", "options") and (k, v) != ("memory", 0)}
    own = options_of("weighting", registry.find("weighting", weighting or "fixed"))
    options = {f"{'weighting' if k in own else 'method'}.{k}": v for k, v in document["options"].items() if v != []}
    return {"method": method, "weighting": weighting, **plain, **options}
