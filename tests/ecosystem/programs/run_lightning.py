"""lightning: a Trainer with a checkpoint and a validation loop; the checkpoint is read again."""

import contextlib
import io
import tempfile
import warnings

import lightning as L
import torch
from common import digest, fill, normal, tell
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
losses = []


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        losses.append(loss.item())
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


data = TensorDataset(normal(32, 4), normal(32, 1, seed=7))
model = fill(Net())
with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        max_epochs=2,
        default_root_dir=folder,
        logger=False,
        accelerator="cpu",
        enable_model_summary=True,
        gradient_clip_val=1.0,
        num_sanity_val_steps=1,
    )
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        trainer.fit(model, DataLoader(data, 8), DataLoader(data, 16))
    path = trainer.checkpoint_callback.best_model_path
    again = Net.load_from_checkpoint(path)
    same = [torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters())]
tell(
    losses=losses,
    val=trainer.callback_metrics["val"].item(),
    same=[sum(same), len(same)],
    bar=["Epoch 1" in shown.getvalue(), "4/4" in shown.getvalue()],
    weights=digest(model.net[0].weight),
)
