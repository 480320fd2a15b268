"""CutMix (Yun et al., 2019) of new samples into remembered ones: a patch of a new image, and its share of the label."""

from everlearn import ER, Batch, Term, cross_entropy


class Mixed(ER):
    """ER whose memory batch has a corner of the new images pasted in, once per step."""

    def select(self, step) -> None:
        (memory,), new = step.replay, step.new
        height, width = memory.x.shape[-2] // 2, memory.x.shape[-1] // 2
        x = memory.x.clone()
        x[..., :height, :width] = new.x[..., :height, :width]
        step.replay = (memory._replace(x=x, stored={"new": new.y}),)

    def rehearse(self, memory: Batch) -> list[Term]:
        if "new" not in memory.stored:  # an outer batch has nothing pasted in
            return [cross_entropy(memory)]
        pasted = cross_entropy(memory._replace(y=memory.stored["new"])).loss
        return [Term(0.75 * cross_entropy(memory).loss + 0.25 * pasted, memory)]
