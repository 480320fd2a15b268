"""From stored pixels to the network's input, a whole batch at a time, on whatever device holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from everlearn.arguments import DEVICE, checked
from everlearn.errors import BadInput

Device = Annotated[torch.device | str, DEVICE]


@checked
@dataclass(frozen=True)
class Pixels:
    """Pad-crop and flip as given, then (x / top − mean) / std per channel. `top` is the value of a white pixel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    pad: int = 0
    flip: bool = False
    top: int = 255
    dtype: torch.dtype = torch.float32
    device: Device = "cpu"
    # Computed from the fields by __post_init__, and so no fields themselves.
    scale: ClassVar[Tensor]
    shift: ClassVar[Tensor]

    def __post_init__(self) -> None:
        lengths = {len(values) if hasattr(values, "__len__") else 0 for values in (self.mean, self.std)} - {1}
        if len(lengths) > 1 or 0 in lengths or not all(s > 0 for s in self.std) or not self.top > 0 or self.pad < 0:
            raise BadInput(
                f"Pixels(mean={self.mean}, std={self.std}, pad={self.pad}, top={self.top}): mean and std are tuples, "
                "a number per channel; std and top must be greater than 0, pad from 0 up"
            )
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
        column = lambda values: torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)
        mean, std = column(self.mean), column(self.std)
        object.__setattr__(self, "scale", (1 / (self.top * std)).to(self.device, self.dtype))
        object.__setattr__(self, "shift", (-mean / std).to(self.device, self.dtype))

    @property
    def channels(self) -> int:
        """The channels of the images it is for; 1 fits images of any."""
        return len(self.shift)

    def to(self, device: Device, dtype: torch.dtype) -> Pixels:
        return replace(self, device=device, dtype=dtype)

    def __call__(self, x: Tensor, view: Tensor | None = None) -> Tensor:
        """x [B, C, H, W] as stored; view [B, 3] = (down, right, flip), each drawn by the plan; None: as it is."""
        if view is not None:
            x = self.crop(x, view)
        return torch.addcmul(self.shift, x.to(self.dtype), self.scale)

    training = __call__  # crops and flips are the plan's: it draws them for training alone

    def document(self) -> dict[str, Any]:
        """Its settings as plain data, which `parse` reads."""
        fields = {"mean": list(self.mean), "std": list(self.std), "pad": self.pad, "flip": self.flip, "top": self.top}
        return {"kind": "pixels", **fields}

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Pixels:
        if lacking := [name for name in ("mean", "std", "pad", "flip", "top") if name not in document]:
            raise BadInput(f"this does not describe Pixels; it lacks {', '.join(lacking)}")
        fields = {name: document[name] for name in ("pad", "flip", "top")}
        return cls(document["mean"], document["std"], **fields)

    def crop(self, x: Tensor, view: Tensor) -> Tensor:
        """The window at (down, right) of the zero-padded image, mirrored where flip is 1."""
        if x.ndim != 4 or view.shape != (len(x), 3):
            raise BadInput(
                f"views of shape {list(view.shape)} for images of shape {list(x.shape)}; [N, 3] and [N, C, H, W]"
            )
        batch, _, height, width = x.shape
        down, right, flip = view.unbind(1)
        rows = down[:, None] + torch.arange(height, device=x.device)  # [B, H]
        columns = torch.arange(width, device=x.device)
        columns = right[:, None] + torch.where(flip[:, None] == 1, width - 1 - columns, columns)  # [B, W]
        image = torch.arange(batch, device=x.device)
        padded = F.pad(x, (self.pad,) * 4)
        return padded.permute(0, 2, 3, 1)[image[:, None, None], rows[:, :, None], columns[:, None, :]].permute(
            0, 3, 1, 2
        )
