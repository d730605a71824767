"""Residual networks: their size, their names, and weights from elsewhere."""

import pytest
import torch
from torch import nn

from labelhedge.models.resnet import create, load_pretrained, resnet18, resnet50


def torchvision_resnet50(classes=1000):
    """Names and shapes of the tensors in torchvision's ResNet50."""
    shapes = {"conv1.weight": (64, 3, 7, 7)}

    def norm(name, channels):
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (channels,)
        shapes[f"{name}.num_batches_tracked"] = ()

    norm("bn1", 64)
    inputs = 64
    for stage, depth in enumerate((3, 4, 6, 3), 1):
        units = 32 * 2**stage
        for block in range(depth):
            name = f"layer{stage}.{block}"
            for number, (out, into, size) in enumerate(
                ((units, inputs, 1), (units, units, 3), (4 * units, units, 1)), 1
            ):
                shapes[f"{name}.conv{number}.weight"] = (out, into, size, size)
                norm(f"{name}.bn{number}", out)
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (4 * units, inputs, 1, 1)
                norm(f"{name}.downsample.1", 4 * units)
            inputs = 4 * units
    return shapes | {"fc.weight": (classes, inputs), "fc.bias": (classes,)}


def test_resnet50_has_the_tensors_of_torchvision():
    with torch.device("meta"):
        ours = {name: tuple(tensor.shape) for name, tensor in resnet50(1000).state_dict().items()}
    assert ours == torchvision_resnet50()


def test_weights_for_other_classes_leave_the_last_layer_alone():
    network = resnet18(4, width=2)
    weights = {name: torch.full_like(tensor, 2) for name, tensor in resnet18(7, width=2).state_dict().items()}
    before = network.fc.weight.clone()
    load_pretrained(network, weights)
    assert torch.equal(network.fc.weight, before)
    assert (network.conv1.weight == 2).all()
    same = resnet18(7, width=2)
    load_pretrained(same, weights)
    assert (same.fc.weight == 2).all()


@pytest.mark.parametrize("change", [lambda w: w.pop("conv1.weight"), lambda w: w.update(extra=torch.zeros(1))])
def test_weights_of_another_network_are_refused(change):
    network = resnet18(4, width=2)
    weights = network.state_dict()
    change(weights)
    with pytest.raises(ValueError, match=r"the weights do not fit the network: .*(conv1|extra)"):
        load_pretrained(network, weights)


@pytest.mark.parametrize(("size", "after_stem"), [(28, 28), (32, 32), (64, 32)])
def test_the_stem_keeps_small_images_as_they_are(size, after_stem):
    network = resnet18(5, channels=1, width=2, image_size=size)
    images = torch.zeros(2, 1, size, size)
    assert network.maxpool(network.conv1(images)).shape == (2, 2, after_stem, after_stem)
    assert network(images).shape == (2, 5)


def test_resnet50_makes_large_images_small():
    network = resnet50(5, width=2)
    assert network.maxpool(network.conv1(torch.zeros(1, 3, 224, 224))).shape == (1, 2, 56, 56)
    assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 5)


def test_depth_and_size():
    network = resnet18(10)
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 17 + 3  # and three on the ways around
    assert sum(p.numel() for p in network.parameters()) == 11_173_962  # as the usual ResNet18 for CIFAR-10


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="unknown model 'vgg'; known models: resnet18, resnet50"):
        create("vgg", 10, channels=3, width=64, image_size=32)


@pytest.mark.gpu
def test_the_same_logits_as_torchvision():
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    theirs = torchvision.models.resnet50()
    ours = resnet50(1000)
    load_pretrained(ours, theirs.state_dict())
    images = torch.randn(2, 3, 224, 224)
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))
