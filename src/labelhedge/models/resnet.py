"""Residual networks (He et al., 2016): ResNet18 for small images, ResNet50 for large ones.

Parameters have torchvision's names, so that its weights load and ours load there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from labelhedge._errors import UserError


class ResNet(nn.Module):
    """A stem, four stages of residual blocks, each of twice the channels and half the size, a mean and a linear layer.

    Args:
        block: What the stages are made of.
        depths: Blocks of each of the four stages.
        num_classes: Number of classes.
        channels: Of the images: 3, or 1 for grey ones.
        width: Channels of the first stage.
        stem: ``"imagenet"`` is a 7×7 convolution and a pooling, which make the image four times as small; a number is a
            3×3 convolution with this stride and nothing else.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        num_classes: int,
        *,
        channels: int = 3,
        width: int = 64,
        stem: str | int = "imagenet",
    ) -> None:
        super().__init__()
        if isinstance(stem, int):
            self.conv1 = _convolution(channels, width, 3, stem)
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = _convolution(channels, width, 7, 2)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        inputs, stages = width, []
        for stage, depth in enumerate(depths):
            units, blocks = width * 2**stage, []
            for number in range(depth):
                blocks.append(block(inputs, units, stride=2 if stage and not number else 1))
                inputs = units * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a way around them."""

    expansion = 1

    def __init__(self, inputs: int, units: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inputs, units, 3, stride), nn.BatchNorm2d(units)
        self.conv2, self.bn2 = _convolution(units, units, 3, 1), nn.BatchNorm2d(units)
        self.downsample = _way_around(inputs, units, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """A 3×3 convolution between two of 1×1, and a way around them; the 3×3 one has the stride, as torchvision's."""

    expansion = 4

    def __init__(self, inputs: int, units: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inputs, units, 1, 1), nn.BatchNorm2d(units)
        self.conv2, self.bn2 = _convolution(units, units, 3, stride), nn.BatchNorm2d(units)
        self.conv3, self.bn3 = _convolution(units, 4 * units, 1, 1), nn.BatchNorm2d(4 * units)
        self.downsample = _way_around(inputs, 4 * units, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _way_around(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def resnet18(num_classes: int, *, channels: int = 3, width: int = 64, image_size: int = 32) -> ResNet:
    """ResNet18 with a 3×3 stem, for images of 28×28, 32×32 or 64×64.

    From 64×64 on the stem has stride 2. The paper does not say so, but its network takes as long for a 64×64 image as
    for a 32×32 one (its running times: 0.8 ms both), and so does this one.

    Example:
        >>> resnet18(10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    stem = 1 if image_size < 64 else 2
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, channels=channels, width=width, stem=stem)


def resnet50(num_classes: int, *, channels: int = 3, width: int = 64, image_size: int = 224) -> ResNet:
    """ResNet50 with the stem for ImageNet, as torchvision's; ``load_state_dict`` takes the weights of that.

    Example:
        >>> sum(p.numel() for p in resnet50(1000).parameters())
        25557032
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, channels=channels, width=width)


MODELS = {"resnet18": resnet18, "resnet50": resnet50}


def create(name: str, num_classes: int, *, channels: int, width: int, image_size: int) -> ResNet:
    """The network with this name, for images of this size."""
    if name not in MODELS:
        raise UserError(f"unknown model {name!r}; known models: {', '.join(MODELS)}")
    return MODELS[name](num_classes, channels=channels, width=width, image_size=image_size)


def load_pretrained(network: ResNet, weights: Mapping[str, Tensor]) -> None:
    """Weights such as torchvision's for ImageNet; a last layer with another number of classes is left as it is.

    Raises:
        UserError: They belong to another network.
    """
    own = network.state_dict()
    head = [name for name in ("fc.weight", "fc.bias") if name in weights and weights[name].shape != own[name].shape]
    given = {name: own[name] if name in head else tensor for name, tensor in weights.items()}
    try:
        network.load_state_dict(given)
    except RuntimeError as error:
        raise UserError(f"the weights do not fit the network: {' '.join(str(error).split())[:200]}") from None
