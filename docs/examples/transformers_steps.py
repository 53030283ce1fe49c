"""Hugging Face's Trainer with the callback that says which step is which:

    gputrace record --range gputrace.capture -o run1 -- python docs/examples/transformers_steps.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import gputrace
import gputrace.transformers

model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
data = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(0, 100, (80, 32))]
steps = gputrace.transformers.Steps(gputrace.schedule(wait=2, warmup=1, active=3, repeat=1))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, max_steps=10, per_device_train_batch_size=8, save_strategy="no", report_to="none", disable_tqdm=True)
    Trainer(model, arguments, train_dataset=data, callbacks=[steps]).train()
print(f"trained on {arguments.device}")
