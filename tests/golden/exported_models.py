"""What zero-train saves, as transformers and safetensors read it.

For a tied, an untied and a grouped-query LLaMA: makes a folder with transformers, trains from it
with zero-train, which saves shards, and loads those strictly. Writes exported/<variant>/ (what
zero-train saved) and exported/<variant>.safetensors (transformers' logits of the first TOKENS bytes
of llama/tokens.txt, which training_run.py writes). With --cases FOLDER also writes files of every
dtype with safetensors, ok_*.safetensors, for others to read.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS, SHARD = 24, "9KB"
VARIANTS = {
    "untied": {"num_key_value_heads": 4, "tie_word_embeddings": False},
    "tied": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "grouped": {"num_key_value_heads": 2, "tie_word_embeddings": False},
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_model(folder, variant):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=256, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64, initializer_range=0.2,
        bos_token_id=None, eos_token_id=None, **VARIANTS[variant])
    LlamaForCausalLM(config).save_pretrained(folder)


def zero_train(programs, model, tokens, output, *flags):
    subprocess.run([programs / "zero-train", "--model", model, "--data", tokens, "--output", output,
                    "--dtype=fp32", "--sequence_length=16", "--ranks=3", "--steps=3", "--threads=3",
                    f"--max_shard_size={SHARD}", *flags],
                   check=True, stdout=subprocess.DEVNULL)


def read_tensors(folder):
    """Every file as safetensors reads it, and the index as it must be."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors = {}
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        with safe_open(path, "pt") as file:
            assert file.metadata() == {"format": "pt"}, path
        for name, tensor in load_file(path).items():
            assert index["weight_map"][name] == path.name, name
            tensors[name] = tensor
    assert len(files) > 1 and set(index["weight_map"]) == set(tensors)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    assert index["metadata"]["total_size"] == total
    return tensors


def load_strictly(folder):
    model, info = LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def export(programs, tokens, variant, folder):
    with tempfile.TemporaryDirectory() as scratch:
        original = Path(scratch) / "model"
        make_model(original, variant)
        # Read and written without training: nothing changes.
        same = Path(scratch) / "same"
        zero_train(programs, original, tokens, same, "--learning_rate=0")
        before = load_file(original / "model.safetensors")
        after = read_tensors(same)
        assert before.keys() == after.keys() and all(
            torch.equal(before[name], after[name]) for name in before), "reading changes weights"
        shutil.rmtree(folder, ignore_errors=True)
        zero_train(programs, original, tokens, folder)
        trained = read_tensors(folder)
        assert not torch.equal(trained["model.norm.weight"], before["model.norm.weight"])
        for name, dtype in DTYPES.items():
            narrow = Path(scratch) / name
            zero_train(programs, original, tokens, narrow, f"--output_dtype={name}")
            assert json.loads((narrow / "config.json").read_text())["dtype"] == str(dtype)[6:]
            rounded = read_tensors(narrow)
            assert all(torch.equal(rounded[n], w.to(dtype)) for n, w in trained.items()), name
            load_strictly(narrow)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = load_strictly(folder)
    state = model.state_dict()
    assert all(torch.equal(state[name], w) for name, w in trained.items())
    with torch.no_grad():
        bytes_ = torch.tensor([list(tokens.read_bytes()[:TOKENS])])
        logits = model(bytes_, use_cache=False).logits[0]
    logits_file = folder.with_suffix(".safetensors")
    save_file({"logits": logits.contiguous()}, logits_file)
    logits_file.chmod(0o644)
    print(f"{variant}: {len(trained)} tensors, logits up to {float(logits.abs().max()):.2f}")


def write_cases(folder):
    folder.mkdir(parents=True, exist_ok=True)
    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8,
              torch.int16, torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn,
              torch.float8_e5m2]
    shapes = [(), (0,), (3, 0, 2), (1,), (7, 5), (2, 3, 4, 5)]
    for dtype in dtypes:
        tensors = {f"t.{i}": torch.arange(torch.Size(s).numel()).reshape(s).to(dtype)
                   for i, s in enumerate(shapes)}
        save_file(tensors, folder / f"ok_{str(dtype)[6:]}.safetensors", {"format": "pt"})
    mixed = {str(d)[6:]: torch.ones(3).to(d) for d in dtypes}
    save_file(mixed, folder / "ok_mixed.safetensors")
    save_file({}, folder / "ok_nothing.safetensors")
    print(f"{folder}: {len(dtypes) + 2} files of safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, required=True, help="folder of zero-train")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "values")
    parser.add_argument("--cases", type=Path, help="gets files that safetensors wrote")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for variant in VARIANTS:
        export(arguments.programs, arguments.out / "llama" / "tokens.txt", variant,
               arguments.out / "exported" / variant)
    if arguments.cases:
        write_cases(arguments.cases)


if __name__ == "__main__":
    main()
