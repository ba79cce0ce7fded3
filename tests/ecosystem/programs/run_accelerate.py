"""accelerate and transformers' Trainer: a few steps of each; models without memory."""

import tempfile

import torch
import transformers as t
from accelerate import Accelerator, init_empty_weights
from common import fill, normal, tell, tokens
from torch.utils.data import DataLoader, TensorDataset

net = fill(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
data = DataLoader(TensorDataset(normal(32, 4), normal(32, 1, seed=3)), 8)
net, optimizer, data = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), data)
losses = []
for x, y in data:
    with accelerator.accumulate(net):
        loss = torch.nn.functional.mse_loss(net(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
with init_empty_weights():
    empty = torch.nn.Linear(10, 10)

ids = [{"input_ids": row, "labels": row} for row in tokens(8, 9)]
torch.manual_seed(0)
model = fill(
    t.GPT2LMHeadModel(
        t.GPT2Config(
            vocab_size=50,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=32,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
)
with tempfile.TemporaryDirectory() as folder:
    arguments = t.TrainingArguments(
        folder,
        max_steps=4,
        per_device_train_batch_size=2,
        logging_steps=1,
        use_cpu=True,
        report_to=[],
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        save_strategy="no",
        data_seed=1,
        seed=1,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )

    class InOrder(t.Trainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(ids)

    trainer = InOrder(model=model, args=arguments, train_dataset=ids)
    trainer.train()
tell(
    losses=losses,
    empty=empty.weight.device.type,
    trainer=[float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry],
)
