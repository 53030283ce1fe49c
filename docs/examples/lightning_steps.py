"""Lightning with the callback that says which batch is which step:

    gputrace record --range gputrace.capture -o run1 -- python docs/examples/lightning_steps.py
"""

import lightning
import torch

import gputrace
import gputrace.lightning


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))

    def training_step(self, batch, batch_index):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layers(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


data = torch.utils.data.TensorDataset(torch.randn(320, 64), torch.randn(320, 1))
steps = gputrace.lightning.Steps(gputrace.schedule(wait=2, warmup=1, active=3, repeat=1))
trainer = lightning.Trainer(max_epochs=1, callbacks=[steps], logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=32))
print(f"trained on {trainer.strategy.root_device}")
