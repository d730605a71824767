"""Two losses with state of their own, as a user may declare them, for tests of what handles any state."""

from labelhedge.losses import Interval, Loss, LossSpec, State, _spec


class RunningMeanLoss(Loss):
    """Cross entropy that leans to the mean of what was predicted before, K numbers per sample."""

    spec = LossSpec(
        "running-mean",
        "-log p_y - sum of t log p",
        domains={"momentum": Interval("[0, 1]")},
        grid=({"momentum": 0.9}, {"momentum": 0.5}),
        state=(State("mean", ("K",), traced=True),),
    )

    def __init__(self, weight=None, *, momentum=0.9, num_samples=None, num_classes=None, **options):
        super().__init__(weight, momentum=momentum, num_samples=num_samples, num_classes=num_classes, **options)

    @staticmethod
    def update(logits, target, momentum, mean):
        return {"mean": momentum * mean + (1 - momentum) * logits.softmax(-1)}

    @staticmethod
    def formula(logits, target, momentum, mean=None):
        log_p = logits.log_softmax(-1)
        value = -log_p.gather(-1, target)
        return value if mean is None else value - (mean * log_p).sum(-1, keepdim=True)

    @staticmethod
    def end_of_epoch(logits, target, momentum, mean):
        """Half of the mean starts anew from the predictions of one moment, made even over all samples."""
        p = logits.softmax(-1)
        even = p / p.mean(-2, keepdim=True)
        return {"mean": (mean + even / even.sum(-1, keepdim=True)) / 2}


class DoubtLoss(Loss):
    """Cross entropy whose share each sample learns, one number; what all samples share is learnt for every class."""

    spec = LossSpec(
        "doubt",
        "-exp(-u) log p_y + u",
        domains={"rate": Interval("[0, 10]")},
        grid=({"rate": 0.3}, {"rate": 2.0}),
        state=(State("doubt", start=0.1, lr="rate", traced=True), State("bias", ("K",), lr=0.05, per_sample=False)),
        nonnegative=False,
    )

    def __init__(self, weight=None, *, rate=0.3, num_samples=None, num_classes=None, **options):
        super().__init__(weight, rate=rate, num_samples=num_samples, num_classes=num_classes, **options)

    @staticmethod
    def formula(logits, target, rate, doubt=None, bias=None):
        if doubt is None:
            return -logits.log_softmax(-1).gather(-1, target)
        return doubt - (-doubt).exp() * (logits + bias).log_softmax(-1).gather(-1, target)


OWN = (RunningMeanLoss, DoubtLoss)
IDS = [module.spec.id for module in OWN]
for name in IDS:  # since tests of all losses are about those of the package
    del _spec._REGISTRY[name]
