"""Golden optimizer steps: 100 updates of a few elements, with the state after each.

A case has "start", what the parameters are before the first step, and for each step "g", the
gradients, and "p", "m" and "v", what is there after it: the state before a step is that after the
one before. All are fp32 bits (golden.words). AdamW, Adam and SGD are torch.optim's; Lion
(arXiv 2302.06675) and Adam without bias correction are written out here: each step in double from
the fp32 state, rounded once.
"""

import math

import numpy as np
import torch

import golden

ELEMENTS = 5
STEPS = 100


def inputs(seed):
    """Parameters near 1 and below; gradients of each element over several binades."""
    generator = np.random.default_rng(seed)
    start = generator.normal(size=ELEMENTS) * np.array([1, 1, 0.1, 0.02, 3])[:ELEMENTS]
    sizes = np.array([1, 1e-2, 1e-5, 30, 0.3])[:ELEMENTS]
    gradients = generator.normal(size=(STEPS, ELEMENTS)) * sizes
    gradients *= 2.0 ** generator.integers(-3, 3, size=(STEPS, ELEMENTS))
    # An element without a gradient for a while: moments decay towards zero.
    gradients[40:60, 1] = 0
    return start.astype(np.float32), gradients.astype(np.float32)


def record(kind, settings, start, steps):
    names = ("g", "p", "m", "v")
    columns = {name: [golden.words(step[name]) for step in steps]
               for name in names if steps[0].get(name) is not None}
    return {"optimizer": kind, **settings, "start": golden.words(start), **columns}


def with_torch(kind, settings, make, state_names, seed):
    start, gradients = inputs(seed)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = make([parameter])
    steps = []
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        step = {"g": gradient, "p": parameter.detach().numpy().copy()}
        for ours, theirs in state_names.items():
            step[ours] = optimizer.state[parameter][theirs].numpy().copy()
        steps.append(step)
    return record(kind, settings, start, steps)


def adam(kind, *, lr, betas, eps, weight_decay, seed, fused=False):
    def make(parameters):
        return {"AdamW": torch.optim.AdamW, "Adam": torch.optim.Adam}[kind](
            parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=fused)
    settings = {"fused": fused, "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                "bias_correction": True}
    return with_torch(kind, settings, make, {"m": "exp_avg", "v": "exp_avg_sq"}, seed)


def sgd(*, lr, momentum, nesterov, weight_decay, seed):
    def make(parameters):
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, nesterov=nesterov,
                               weight_decay=weight_decay)
    settings = {"lr": lr, "momentum": momentum, "nesterov": nesterov,
                "weight_decay": weight_decay}
    return with_torch("SGD", settings, make, {"m": "momentum_buffer"} if momentum else {}, seed)


def written_out(kind, settings, seed, step):
    start, gradients = inputs(seed)
    p, m, v = start, np.zeros_like(start), np.zeros_like(start)
    steps = []
    for gradient in gradients:
        state = (x.astype(np.float64) for x in (p, m, v, gradient))
        p, m, v = (None if x is None else x.astype(np.float32) for x in step(*state))
        steps.append({"g": gradient, "p": p, "m": m, "v": v})
        if v is None:
            v = np.zeros_like(start)
    return record(kind, settings, start, steps)


def uncorrected_adam(kind, *, lr, betas, eps, weight_decay, seed):
    """DeepSpeed's "bias_correction": false."""
    def step(p, m, v, g):
        if kind == "Adam":
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        keep = 1 - lr * weight_decay if kind == "AdamW" else 1
        return keep * p - lr * m / (np.sqrt(v) + eps), m, v
    settings = {"fused": False, "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                "bias_correction": False}
    return written_out(kind, settings, seed, step)


def lion(*, lr, betas, weight_decay, seed):
    def step(p, m, v, g):
        c = betas[0] * m + (1 - betas[0]) * g
        # A sign that rounding decides would compare nothing.
        assert np.all((c == 0) | (np.abs(c) > 1e-5 * np.maximum(np.abs(m), np.abs(g))))
        moved = p * (1 - lr * weight_decay) - lr * np.sign(c)
        return moved, betas[1] * m + (1 - betas[1]) * g, None
    settings = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
    return written_out("Lion", settings, seed, step)


def main():
    torch.set_num_threads(1)
    folder = golden.output_folder(__doc__.splitlines()[0])
    files = {
        "adamw": [
            adam("AdamW", lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, seed=1),
            adam("AdamW", lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, seed=2),
            adam("AdamW", lr=6e-6, betas=(0.8, 0.999), eps=1e-8, weight_decay=0, seed=3),
            adam("AdamW", lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, seed=4,
                 fused=True),
            uncorrected_adam("AdamW", lr=3e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1,
                             seed=5)],
        "adam": [
            adam("Adam", lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, seed=11),
            adam("Adam", lr=1e-2, betas=(0.8, 0.99), eps=1e-8, weight_decay=0.1, seed=12),
            adam("Adam", lr=3e-4, betas=(0.9, 0.999), eps=1e-7, weight_decay=0.01, seed=13,
                 fused=True),
            uncorrected_adam("Adam", lr=3e-4, betas=(0.8, 0.999), eps=1e-8, weight_decay=0.1,
                             seed=14)],
        "sgd": [
            sgd(lr=1e-2, momentum=0, nesterov=False, weight_decay=0, seed=21),
            sgd(lr=1e-2, momentum=0, nesterov=False, weight_decay=0.1, seed=22),
            sgd(lr=1e-2, momentum=0.9, nesterov=False, weight_decay=0.01, seed=23),
            sgd(lr=1e-3, momentum=0.95, nesterov=True, weight_decay=0.1, seed=24)],
        "lion": [
            lion(lr=1e-4, betas=(0.9, 0.99), weight_decay=0, seed=31),
            lion(lr=3e-3, betas=(0.95, 0.98), weight_decay=0.1, seed=32)],
    }
    for name, cases in files.items():
        golden.write(folder / f"{name}.json", {
            "versions": golden.versions("torch", "numpy"), "cases": cases})
    golden.write(folder / "clipping.json", {
        "versions": golden.versions("torch", "numpy"), "cases": list(clippings())})


def clippings():
    """torch.nn.utils.clip_grad_norm_ over several tensors."""
    generator = np.random.default_rng(41)
    lists = [[np.array([3, 4]), np.array([12])], [np.zeros(3)]]
    for size in (1e-3, 1, 1e4):
        lists.append([generator.normal(size=n) * size for n in (1, 7, 40)])
    for arrays in lists:
        for limit in (1.0, 0.1, 6.0, 50.0):
            parameters = []
            for array in arrays:
                parameters.append(torch.nn.Parameter(torch.zeros(len(array))))
                parameters[-1].grad = torch.from_numpy(array.astype(np.float32))
            before = [golden.words(p.grad) for p in parameters]
            norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
            assert math.isfinite(norm)
            yield {"limit": limit, "norm": golden.words([norm]), "before": before,
                   "after": [golden.words(p.grad) for p in parameters]}


if __name__ == "__main__":
    main()
