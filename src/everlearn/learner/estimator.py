"""scikit-learn's manners: a learner can be cloned, searched over and put into a pipeline like any classifier."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from everlearn.arguments import Checked
from everlearn.core.theta import widen
from everlearn.data.samples import gathered
from everlearn.errors import BadInput, Notice, shown, unknown
from everlearn.learner.labels import plain
from everlearn.training import Training

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner


def unused(given: dict[str, Any]) -> dict[str, Any]:
    """The method and the weighting among these, copied: each learner has its own."""
    return {key: copy.deepcopy(given[key]) for key in ("method", "weighting")}


class Estimator(Checked):
    """The part of a learner that scikit-learn knows."""

    _made_with: dict[str, Any]  # as it was given, the method and weighting before they were used
    _first: dict[str, Tensor]  # the network as it came
    _first_outputs: dict[str, int]  # of each of its linear layers

    def _keep_first(self, network: nn.Module, given: dict[str, Any]) -> None:
        """How it was made, to make another like it."""
        self._made_with = {"network": network} | given | unused(given)
        self._first = {
            name: tensor.detach().cpu().clone() if isinstance(tensor, Tensor) else tensor
            for name, tensor in network.state_dict().items()
        }
        layers = network.named_modules()
        self._first_outputs = {name: layer.out_features for name, layer in layers if isinstance(layer, nn.Linear)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with, by name."""
        return dict(self._made_with)

    def set_params(self, **params: Any) -> Any:
        """Be made anew, with these settings changed, `lr=0.1` or a whole `training`: all it has learned is gone."""
        fields = {field.name for field in dataclasses.fields(Training)}
        for name in params:
            if name not in self._made_with.keys() | fields:
                raise unknown("setting of a Learner", name, self._made_with.keys() | fields)
        made = self._made_with | {name: params[name] for name in params if name not in fields}
        own = {name: params[name] for name in params if name in fields}
        made["training"] = dataclasses.replace(made["training"], **own)
        network = params.get("network")
        if params:  # refused before anything is lost; the network it has was taken once
            stand_in = nn.Linear(1, 1) if network is None else copy.deepcopy(network)
            type(self)(**made | unused(made) | {"network": stand_in})
        if params and self.__sklearn_is_fitted__():
            words = (
                "set_params makes a learner anew: what this one had learned is gone; learner.epochs and learner.sgd.lr"
            )
            warnings.warn(f"{words} may be assigned, and it stays as it is", Notice, stacklevel=2)
        self.__init__(
            **made | unused(made) | {"network": self._untaught(self._rested()) if network is None else network}
        )
        return self

    def __sklearn_clone__(self) -> Any:
        """Another learner, made with the same and taught nothing."""
        network = self._untaught(copy.deepcopy(self._rested()))
        return type(self)(**self._made_with | unused(self._made_with) | {"network": network})

    def _rested(self: Any) -> nn.Module:
        return self.net.unbind()

    def _untaught(self, network: nn.Module) -> nn.Module:
        """A network of the same make as it came."""
        for name, outputs in self._first_outputs.items():
            if (layer := network.get_submodule(name)).out_features != outputs:
                widen(layer, outputs)
        network.load_state_dict(self._first)
        return network

    def fit(self: Any, X: Any, y: Any = None) -> Learner:  # scikit-learn's name
        """Forget everything and learn these data as a first task."""
        self.set_params()
        return self.update(X, y)

    def partial_fit(self: Any, X: Any, y: Any = None, classes: Iterable[Hashable] | None = None) -> Learner:
        """`observe`, and the learner itself; `classes`, with the first call, are labels that compete from the start."""
        from everlearn.learner import growth

        if classes is not None:
            names = list(map(plain, classes))
            if not self.classes:
                x, _ = gathered(X, y)
                self._receive(x := self._stored(x))
                growth.grow(self, self.labels.new(names), x)
            elif strange := self.labels.new(names):
                raise BadInput(f"classes has {shown(strange[0])}, which it had not with the first call")
        self.observe(X, y)
        return self

    @property
    def feature_names_in_(self: Any) -> np.ndarray:
        """The columns of the table it was taught with, by name; not there where they have none."""
        if self.columns is None:
            raise AttributeError("this learner was taught with no table whose columns have names")
        return np.array(self.columns, dtype=object)

    def __getstate__(self: Any) -> dict[str, Any]:
        """All but recorded steps, which belong to this process. In a callback, a copy may be taught on like one that
        was saved there."""
        with self.net.turn:
            self.net.sync()
            self.net.unbind()
            kept = vars(self) | {"_steps": None, "_learning": False, "_teacher": None, "_left": None}
            return kept | ({"_resumed": self._reached()} if self._learning and self.within_task else {})

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=True, three_d_array=True),
        )

    def __sklearn_is_fitted__(self: Any) -> bool:
        return bool(self.classes and (self.tasks or self.prequential.batches))
