"""What a run writes down after every task: its accuracies, which class was taken for which, what the memory holds."""

import pytest
import torch
from conftest import learner_of, toy

import everlearn
from everlearn import registry
from everlearn.experiments.results import read_lines

SMALL = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=1, batch=32)


def lines(method, folder, **settings):
    everlearn.run(method, out=folder, **SMALL | settings)
    (made,) = folder.iterdir()
    return [line for line in read_lines(made) if line["event"] == "task"]


def dense(sparse, classes=4):
    counts = torch.zeros(classes, classes, dtype=torch.long)
    counts[sparse["true"], sparse["predicted"]] = torch.tensor(sparse["count"])
    return counts


@pytest.mark.parametrize("method", [*registry.METHODS, "rer"])
def test_every_method_writes_down_its_confusions_and_its_memory_after_every_task(tmp_path, method):
    tasks = everlearn.load("digits", classes=SMALL["classes"], tasks=2).tasks
    memory = {"memory": 20} if registry.find("method", registry.parts(method)[0]).remembers else {}
    written = lines(method, tmp_path, **memory)
    assert len(written) == (1 if method == "joint" else 2)
    for number, line in enumerate(written):
        counts = dense(line["confusion"])
        sizes = torch.cat([task.test[1] for task in tasks]).bincount()
        assert torch.equal(counts.sum(1), sizes)
        for task, accuracy in zip(tasks, line["class_il"]):
            own = list(task.classes)
            assert 100 * float(counts.diagonal()[own].sum() / sizes[own].sum()) == pytest.approx(accuracy)
        assert ("memory" in line) == bool(memory)
        if memory:
            met = 2 * (number + 1)
            assert 0 < sum(line["memory"]) <= 20 and not any(line["memory"][met:])


def test_the_confusions_come_from_the_scores_the_accuracies_come_from():
    stream = toy()
    learner = learner_of("er", stream)
    learner.update(stream.tasks[0])
    asked, judged = [], learner._judged
    learner._judged = lambda x: asked.append(len(x)) or judged(x)
    accuracies, confusion = learner.examine(stream)
    assert asked == [len(task.test[1]) for task in stream.tasks]
    assert accuracies == learner.evaluate(stream) and confusion.shape == (4, 4)
    guesses = learner.predict(torch.cat([task.test[0] for task in stream.tasks]))
    labels = torch.cat([task.test[1] for task in stream.tasks])
    assert all(confusion[t, p] == ((labels == t) & (guesses == p)).sum() for t in range(4) for p in range(4))


def test_a_class_the_learner_has_not_met_is_in_no_confusion():
    stream = toy()
    learner = everlearn.Learner(everlearn.networks.CNN(stream.shape, 2), "er", memory=8, batch=4, inputs=stream.pixels)
    learner.update(stream.tasks[0])
    _, confusion = learner.examine(stream.tasks[:1])
    assert confusion.shape == (2, 2) and confusion.sum() == len(stream.tasks[0].test[1])
