"""monai: networks, a loss, transforms, windows over an image."""

from common import case, digest, fill, normal, tell
from monai.inferers import sliding_window_inference
from monai.losses import DiceLoss
from monai.networks.nets import DenseNet121, UNet
from monai.transforms import Compose, Resize, Rotate, ScaleIntensity, Zoom


def gradients(model):
    return sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)


@case
def segmentation():
    sizes = {"channels": (4, 8, 16), "strides": (2, 2), "num_res_units": 1}
    model = fill(UNet(spatial_dims=2, in_channels=1, out_channels=2, **sizes))
    x = normal(2, 1, 16, 16)
    found = model(x)
    loss = DiceLoss(softmax=True, to_onehot_y=True)(found, (x > 0).float())
    loss.backward()
    return {"result": digest(found), "loss": loss.item(), "gradients": gradients(model)}


@case
def dense_blocks():
    sizes = {"block_config": (2, 2), "growth_rate": 4, "init_features": 8}
    model = fill(DenseNet121(spatial_dims=2, in_channels=1, out_channels=3, **sizes)).eval()
    found = model(normal(2, 1, 32, 32))
    found.square().mean().backward()
    return {"result": digest(found), "gradients": gradients(model)}


@case
def transforms():
    change = Compose([ScaleIntensity(), Resize((12, 12)), Rotate(0.3), Zoom(1.2)])
    return digest(change(normal(1, 16, 16)).as_tensor())


@case
def windows():
    found = sliding_window_inference(normal(1, 1, 20, 20), (8, 8), 2, lambda x: 2 * x, overlap=0.25)
    return digest(found)


tell()
