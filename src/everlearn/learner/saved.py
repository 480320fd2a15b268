"""A learner in a folder: one file that holds all it has learned and says how it was made; nothing is pickled."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from everlearn import checks, networks
from everlearn.core.state import as_bytes, from_bytes, part
from everlearn.data import Inputs, Pixels
from everlearn.errors import BadInput, parsed, shown, unknown
from everlearn.files import write_whole
from everlearn.learner.labels import Labels
from everlearn.methods.base import Method
from everlearn.spec import Spec, frozen, look_up, options_of, read_as
from everlearn.training import Training
from everlearn.version import __version__

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

FORMAT = 1
LEARNER, NETWORK = "learner.safetensors", "network.safetensors"
KNOWN = "learner.known"


def specs(method: Method) -> dict[str, Spec | str]:
    """What a method and its weighting are found again by, or why they are not."""

    def of(kind: str, thing: Any) -> Spec | str:
        try:
            found = look_up(kind, thing)
            options = tuple(sorted((name, frozen(value)) for name, value in found.given.items()))
            return Spec(found.name, options, found.source, found.at)
        except BadInput as error:
            return str(error)

    return {"method": of("method", method), "weighting": of("weighting", method.weighting)}


def save(learner: Learner, folder: str | os.PathLike[str]) -> None:
    """The whole learner in one file, there or not at all."""
    made = folder_of(folder)
    if of_a_run(made):
        raise BadInput(f"{made} is a run's folder, which stays as it is; give another name")
    content = packed(learner.state(), document(learner))
    write_whole(made / LEARNER, lambda draft: draft.write(content))


def of_a_run(folder: Path) -> bool:
    return (folder / "experiment.json").exists() or (folder / "result.json").exists()


def folder_of(name: str | os.PathLike[str]) -> Path:
    """A folder of that name, made if there is none."""
    folder = Path(os.path.expanduser(name))
    if os.path.lexists(folder) and not folder.is_dir():
        raise BadInput(f"{folder} is a file; give the name of a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{shown(str(folder))} cannot be made: {error.strerror}") from None
    return folder


def keep(learner: Learner, network: dict[str, Any] | None, names: Sequence[str]) -> dict[str, bytes]:
    """The files of a run's learner: its network by itself, and what else it takes to teach it on.

    `network` says how to build it, `names` what people call its classes.
    """
    state = learner.state()
    known = parsed(from_bytes(state[KNOWN]))
    known["labels"]["names"] = list(names)
    state[KNOWN] = as_bytes(json.dumps(known))
    about = document(learner) | {"classes": known["labels"], "network": network}
    weights = packed(part(state, "network"), {key: about[key] for key in ("format", "classes", "inputs", "network")})
    others = {name: tensor for name, tensor in state.items() if not name.startswith("network.")}
    return {NETWORK: weights, LEARNER: packed(others, about | {"beside": hashlib.sha256(weights).hexdigest()})}


def document(learner: Learner) -> dict[str, Any]:
    """How it was made, as plain data."""
    spec = lambda of: of.document() if isinstance(of, Spec) else {"why": of}
    known = {kind: spec(of) for kind, of in learner.specs.items()}
    rows = learner.capacity if learner.rule == "reservoir" else f"{learner.rule}:{learner.capacity}"
    return {
        "format": FORMAT,
        "everlearn": __version__,
        **known,
        "training": dataclasses.asdict(learner.training) | {"epochs": learner.epochs},
        "lr": checks.rate(learner),  # now: at the end of a schedule it may be 0, where no training begins
        "memory": rows,
        "seed": learner.seed,
        "dtype": str(learner.dtype).removeprefix("torch."),
        "classes": learner.labels.document(),
        "inputs": learner.inputs and learner.inputs.document(),
        "network": learner.built,
        "tasks": learner.tasks,
    }


def packed(tensors: dict[str, Tensor], about: dict[str, Any]) -> bytes:
    """Tensors and their description as one safetensors file, with a checksum."""
    from safetensors.torch import save

    whole, words = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, json.dumps(about)
    return save(whole, {"everlearn": words, "sha256": checksum(whole, words)})


def checksum(tensors: dict[str, Tensor], words: str) -> str:
    digest = hashlib.sha256(words.encode())
    for name in sorted(tensors):
        digest.update(repr((name, tensors[name].dtype, list(tensors[name].shape))).encode())
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any], bytes]:
    """A file's tensors, what it says of itself, and its bytes; refused if it is not as it was written."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load

    try:
        content = file.read_bytes()
        tensors = load(content)
        with safe_open(file, "pt") as opened:
            words = opened.metadata() or {}
        about = parsed(words.get("everlearn", "null"))
    except FileNotFoundError:
        raise BadInput(f"there is no {file}; learner.save(folder) makes one, and so does `everlearn run`") from None
    except (SafetensorError, ValueError, OSError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    if not isinstance(about, dict) or not isinstance(about.get("format"), int):
        raise BadInput(f"{file} is not a learner saved by everlearn")
    if about["format"] > FORMAT:
        raise BadInput(f"{file} was written by everlearn {about.get('everlearn')}, which is newer than {__version__}")
    if words.get("sha256") != checksum(tensors, words["everlearn"]):
        raise BadInput(f"{file} is damaged: its content is not what was written")
    return tensors, about, content


def load(
    cls: type[Learner],
    folder: str | os.PathLike[str],
    network: nn.Module | str | Mapping[str, Any] | None = None,
    *,
    method: Method | str | None = None,
    weighting: Any = None,
    inputs: Any = None,
    changed_inputs: bool = False,
    **engine: Any,
) -> Learner:
    """The learner of a folder. `engine`: a Learner's `device`, `capture` and `compile`."""
    folder = Path(folder).expanduser()
    state, about, _ = read(folder / LEARNER)
    if "beside" in about:
        weights, _, content = read(folder / NETWORK)
        if hashlib.sha256(content).hexdigest() != about["beside"]:
            raise BadInput(f"{folder / NETWORK} is not the network {LEARNER} was written with")
        state |= {f"network.{name}": tensor for name, tensor in weights.items()}
    for name in engine:
        if name not in ("device", "capture", "compile"):
            raise BadInput(f"{name} is what the learner was saved with; of a Learner only device may be another")
    training = Training(**about["training"])
    if checks.device(engine.get("device", "cpu")).type == "cpu" and training.precision != "float32":
        training = dataclasses.replace(training, precision="float32")  # the others are for a GPU
    made = method if isinstance(method, Method) else built("method", method or about["method"])
    if not isinstance(method, Method) or weighting is not None:
        own = weighting if weighting is not None else about["weighting"]
        made.weighting = built("weighting", own) if isinstance(own, (str, dict)) else own
    how = about["network"] if network is None else None
    if network is not None and not isinstance(network, nn.Module):
        how = described(network, state, about)
    learner = cls(
        network if isinstance(network, nn.Module) else rebuilt(how, folder),
        made,
        memory=about["memory"] or checks.USUAL,  # 0 of a method that keeps none
        training=training,
        inputs=inputs,
        seed=about["seed"],
        dtype=getattr(torch, about["dtype"]),
        **engine,
    )
    learner.changed_inputs, learner.built = changed_inputs, how
    learner.sgd.lr = about.get("lr", training.lr)
    learner.restore(state)
    as_made(learner)
    return learner


def as_made(learner: Learner) -> None:
    """What was said of classes and inputs when it was made goes for those made like it, too."""
    labels, own, usual = learner.labels, learner.inputs, (Pixels().document(), Inputs().document())
    if classes := labels.limit or (labels.known and list(labels.names)):
        learner.told = Labels(classes)
        learner._made_with["classes"] = classes
    if learner.given_inputs is None and own is not None and own.document() not in usual:
        learner.given_inputs = learner._made_with["inputs"] = own


def built(kind: str, document: Any) -> Any:
    """A method or weighting from what was written down of it."""
    if isinstance(document, dict) and "why" in document:
        raise BadInput(f"its {kind} could not be saved ({document['why']}); give it again: {kind}=…")
    found = look_up(kind, Spec.parse(document) if isinstance(document, dict) else document)
    return found.thing(**found.given)


def described(network: Any, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> dict[str, Any]:
    """How to build a network that is named, for the samples and classes of a state."""
    if "memory.x" not in state:
        raise BadInput("this learner has met no sample yet, whose shape a network is built for; give an nn.Module")
    found = look_up("network", network)
    known = options_of("network", found.thing)
    for name in found.given:
        if name not in known:
            raise unknown(f"option of {found.name}", name, known)
    options = {name: read_as(name, value, known[name].annotation) for name, value in found.given.items()}
    spec = Spec(found.name, tuple(sorted((name, frozen(value)) for name, value in options.items())), *found[2:4])
    shape = list(state["memory.x"].shape[1:])
    return {"spec": spec.document(), "shape": shape, "classes": len(about["classes"]["names"])}


def rebuilt(document: dict[str, Any] | None, folder: Path) -> nn.Module:
    if document is None:
        raise BadInput(
            f"{folder} holds weights and no code; give a network like it had: "
            "--network file.py:make, in Python Learner.load(folder, network)"
        )
    try:
        found = look_up("network", Spec.parse(document["spec"]))
    except BadInput as error:
        raise BadInput(f"the network of {folder} is not found ({error}); give one like it had") from None
    return networks.build(found.thing, tuple(document["shape"]), document["classes"], 0, **found.given)
