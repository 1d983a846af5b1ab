"""Golden traces of loss scales: DeepSpeed's DynamicLossScaler and torch.amp.GradScaler.

"steps" has an "o" for each step whose gradient is not finite; "scales"[i] is the scale after step
i. "stopped": DeepSpeed raised an error in the step after the last one listed.
"""

import logging
import random
import types

import torch

import golden

logging.disable(logging.WARNING)
from deepspeed.runtime.fp16 import loss_scaler  # noqa: E402

# It asks for its rank before it logs, and there is no process group here.
loss_scaler.dist = types.SimpleNamespace(get_rank=lambda: 0)


def deepspeed(steps, *, start, window, hysteresis=2, consecutive=False, minimum=1):
    scaler = loss_scaler.DynamicLossScaler(
        init_scale=start, scale_window=window, min_scale=minimum, delayed_shift=hysteresis,
        consecutive_hysteresis=consecutive)
    scales, stopped = [], False
    for step in steps:
        try:
            scaler.update_scale(step == "o")
        except Exception as error:  # DeepSpeed raises nothing more specific
            assert "already at minimum" in str(error)
            stopped = True
            break
        scales.append(float(scaler.cur_scale))
    return {"rule": "DynamicLossScaler", "start": start, "window": window,
            "hysteresis": hysteresis, "consecutive_hysteresis": consecutive, "minimum": minimum,
            "steps": steps, "stopped": stopped, "scales": scales}


def grad_scaler(steps, *, start, window):
    """A real step: a loss is scaled, a gradient is unscaled, and a weight moves or does not."""
    scaler = torch.amp.GradScaler("cpu", init_scale=start, growth_interval=window)
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scales, applied = [], 0
    for step in steps:
        optimizer.zero_grad()
        scaler.scale(weight * (float("inf") if step == "o" else -1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(float(scaler.get_scale()))
        applied += step != "o"
        assert weight.item() == applied, (weight.item(), applied)
    return {"rule": "GradScaler", "start": start, "window": window, "steps": steps,
            "stopped": False, "scales": scales}


def random_steps(seed, overflows):
    generator = random.Random(seed)
    return "".join("o" if generator.random() < overflows else "." for _ in range(100))


def cases():
    mixed = "......ooo..........o..."
    yield deepspeed(mixed, start=65536, window=4)
    yield deepspeed("ooo" + "." * 40, start=65536, window=12)
    # An overflow in every step: down to the minimum, and the end.
    yield deepspeed("o" * 8, start=16, window=1000, hysteresis=1)
    yield deepspeed("o" * 8, start=16, window=1000, hysteresis=2)
    yield deepspeed("o" * 8, start=2, window=1000, hysteresis=1, minimum=0.5)
    yield deepspeed("." * 14, start=1, window=4)
    yield deepspeed("...o......", start=16, window=4, hysteresis=1)
    yield deepspeed("o." * 5, start=16, window=1000)
    yield deepspeed("o." * 5, start=16, window=1000, consecutive=True)
    yield deepspeed("." * 12, start=1, window=2)
    for seed, (window, hysteresis, consecutive) in enumerate(
            ((1, 1, False), (2, 1, False), (3, 2, False), (3, 2, True), (5, 3, False),
             (7, 4, True))):
        for overflows in (0.05, 0.2, 0.4):
            steps = random_steps(seed, overflows)
            yield deepspeed(steps, start=2.0**16, window=window, hysteresis=hysteresis,
                            consecutive=consecutive, minimum=1)
    yield grad_scaler(mixed, start=65536.0, window=4)
    for seed, window in enumerate((1, 2, 5)):
        for overflows in (0.05, 0.2, 0.4):
            yield grad_scaler(random_steps(100 + seed, overflows), start=2.0**16, window=window)


def main():
    folder = golden.output_folder(__doc__.splitlines()[0])
    golden.write(folder / "loss_scales.json", {
        "versions": golden.versions("torch", "deepspeed"), "cases": list(cases())})


if __name__ == "__main__":
    main()
