"""A golden training run: 20 steps of a small LLaMA of transformers with torch.optim.AdamW, in fp32.

Writes the folder llama/ (config.json, model.safetensors, which holds bf16, and tokens.txt) and what
PyTorch makes of it: training_run.json has loss and gradient norm of each step, and for each tensor
its norm after the last; training_run.safetensors has every STRIDE-th element of each tensor then.
--all FILE also writes all of them.
"""

import argparse
import random
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import golden

STEPS, BATCH, LENGTH, STRIDE = 20, 4, 32, 7
RATE, DECAY, CLIP = 1e-3, 0.1, 1.0


def write_tokens(path):
    """Made-up words, so that there is something to learn: bytes are tokens."""
    generator = random.Random(5)
    words = ["".join(generator.choice("aeiou" if i % 2 else "bdfklmnprst")
                     for i in range(generator.randint(2, 7))) for _ in range(40)]
    text = ""
    while len(text) <= STEPS * BATCH * LENGTH:
        text += generator.choice(words) + generator.choice("     \n,.")
    path.write_text(text[:STEPS * BATCH * LENGTH + 1])


def write_model(folder):
    torch.manual_seed(6)
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        initializer_range=0.02, bos_token_id=None, eos_token_id=None, tie_word_embeddings=False)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)


def train(folder, dtype):
    model = LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.train()
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": DECAY},
         {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}],
        lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    tokens = torch.tensor(list((folder / "tokens.txt").read_bytes()))
    losses, norms = [], []
    for step in range(STEPS):
        samples = [tokens[i * LENGTH:(i + 1) * LENGTH + 1]
                   for i in range(step * BATCH, (step + 1) * BATCH)]
        batch = torch.stack(samples)
        optimizer.zero_grad()
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP)))
        losses.append(loss.item())
        optimizer.step()
    return losses, norms, {name: p.detach() for name, p in parameters.items()}


def farthest_ratio(values, exact):
    return max(abs(a / b - 1) for a, b in zip(values, exact))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "values")
    parser.add_argument("--all", type=Path, help="gets all weights after the last step")
    arguments = parser.parse_args()
    folder = arguments.out / "llama"
    folder.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    write_tokens(folder / "tokens.txt")
    write_model(folder)

    losses, norms, weights = train(folder, torch.float32)
    # How much of the difference to anybody's fp32 is rounding: the same run in double.
    exact_losses, exact_norms, exact = train(folder, torch.float64)
    farthest = max(float((weights[name] - exact[name]).abs().max()) for name in weights)
    print(f"fp32 against double: losses {farthest_ratio(losses, exact_losses):.1e}, norms "
          f"{farthest_ratio(norms, exact_norms):.1e}, weights {farthest / RATE:.1e} x rate")
    assert farthest < 0.005 * RATE, "rounding decides too much: take another seed"
    if arguments.all:
        save_file(weights, arguments.all)
    save_file({name: w.flatten()[::STRIDE].contiguous() for name, w in weights.items()},
              arguments.out / "training_run.safetensors")
    golden.write(arguments.out / "training_run.json", {
        "versions": golden.versions("torch", "transformers", "safetensors"),
        "settings": {"steps": STEPS, "batch": BATCH, "sequence_length": LENGTH, "rate": RATE,
                     "weight_decay": DECAY, "clip": CLIP, "stride": STRIDE},
        "losses": losses, "norms": norms,
        "weight_norms": {name: float(w.double().norm()) for name, w in weights.items()}})


if __name__ == "__main__":
    main()
