"""What people bring along: data of several kinds."""

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

COLOURS = {"cat": (200, 90, 40), "dog": (60, 60, 160), "bird": (40, 190, 80), "fish": (180, 40, 190)}


class Photos(Dataset):
    """Pillow images and names, as torchvision's data sets give them."""

    def __init__(self, *labels: str):
        self.labels = labels * (24 // len(labels))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, n: int):
        noise = np.random.default_rng([n, *self.labels[n].encode()]).integers(-40, 40, (12, 10, 3))
        return Image.fromarray((COLOURS[self.labels[n]] + noise).astype(np.uint8)), self.labels[n]


def sentences(*topics: str) -> tuple[torch.Tensor, list[str]]:
    """200 token ids each, most of them of the topic."""
    own, labels = {"sports": 0, "trade": 100, "music": 200}, list(topics) * 12
    random = np.random.default_rng([own[topic] for topic in topics])
    text = [np.where(random.random(200) < 0.6, own[t] + random.integers(0, 100, 200), 300) for t in labels]
    return torch.from_numpy(np.stack(text)), labels


def digits(*classes: int) -> tuple[np.ndarray, np.ndarray]:
    """64 numbers each."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    chosen = np.isin(y, classes)
    return x[chosen][:120] / 16, y[chosen][:120]


def tiles(*classes: int) -> TensorDataset:
    """Bytes [3, 8, 8] with a bright corner each."""
    random, y = torch.Generator().manual_seed(sum(classes)), torch.tensor(classes * 16)
    x = torch.randint(0, 120, (len(y), 3, 8, 8), generator=random)
    for image, c in zip(x, y.tolist()):
        image[:, c // 2 * 4 : c // 2 * 4 + 4, c % 2 * 4 : c % 2 * 4 + 4] += 120
    return TensorDataset(x.to(torch.uint8), y)


def readings(seed: int) -> DataLoader:
    """A stream of mini-batches, the kinds drifting in one after another."""
    random = np.random.default_rng(seed)
    y = np.sort(random.integers(seed, seed + 3, 96))
    x = random.normal(size=(96, 5)) + 4 * np.eye(5)[y % 5]
    return DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=7)
