"""Golden rates: what PyTorch's, transformers' and DeepSpeed's own classes set before each update.

Each training loop is `optimizer.step(); scheduler.step()`. "lr"[i] and "beta1"[i] are what the
optimizer had in its (i + 1)-th step. "lead" is how many updates the original is behind the
convention of zero/schedules.h; values whose index is below "first" differ on purpose (a warm-up of
one step; OneCycle's first beta1).
"""

import logging
import math
import warnings

import torch
from torch.optim.lr_scheduler import StepLR
from transformers import optimization

import golden

logging.disable(logging.WARNING)
from deepspeed.runtime import lr_schedules as deepspeed_schedules  # noqa: E402

UPDATES = 50


def run(lr, make, updates):
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.AdamW([parameter], lr=lr)
    scheduler = make(optimizer)
    rates, betas = [], []
    for _ in range(updates):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        betas.append(float(optimizer.param_groups[0]["betas"][0]))
        optimizer.step()
        scheduler.step()
    return rates, betas


def case(schedule, fields, make, *, lr=3e-4, lead=0, first=0, beta1=False):
    rates, betas = run(lr, make, UPDATES + lead)
    result = {"schedule": schedule, "fields": fields, "lead": lead, "first": first, "lr": rates}
    if beta1:
        result["beta1"] = betas
    return result


def constant(lr, **fields):
    def make(optimizer):
        return optimization.get_constant_schedule_with_warmup(
            optimizer, fields.get("warmup_steps", 0))
    return case("constant", {"lr": lr, **fields}, make, lr=lr)


def step_lr(lr, **fields):
    return case("StepLR", {"lr": lr, **fields}, lambda o: StepLR(o, **fields), lr=lr)


def huggingface(name, function, lr, total_steps, *, first=0, **fields):
    steps = fields.get("warmup_steps", 0)
    if "warmup_ratio" in fields:
        steps = math.ceil(total_steps * fields["warmup_ratio"])
    extra = {"num_cycles": fields["num_cycles"]} if "num_cycles" in fields else {}

    def make(optimizer):
        return function(optimizer, num_warmup_steps=steps, num_training_steps=total_steps, **extra)
    return case(name, {"lr": lr, "total_steps": total_steps, **fields}, make, lr=lr, first=first)


def deepspeed(name, *, lead=0, first=0, lr=None, **fields):
    def make(optimizer):
        return getattr(deepspeed_schedules, name)(optimizer, **fields)
    written = dict(fields) if lr is None else {"lr": lr, **fields}
    result = case(name, written, make, lr=lr or 3e-4, lead=lead, first=first,
                  beta1=name == "OneCycle")
    if lead == 1:
        # One update at the lowest rate, or at 0, before the schedule begins.
        assert result["lr"][0] in (0, result["lr"][1]), (name, fields)
    return result


def warmups():
    """DeepSpeed's three with a warm-up, in both forms."""
    for kind in ("log", "linear"):
        for low, high, steps in ((0.0, 1e-3, 10), (1e-6, 2e-5, 7), (0.0, 1e-3, 2), (0.0, 5e-4, 80)):
            yield deepspeed("WarmupLR", lead=1, warmup_min_lr=low, warmup_max_lr=high,
                            warmup_num_steps=steps, warmup_type=kind)
        for total, low, high, steps in ((20, 0.0, 1e-3, 4), (10, 0.0, 1e-3, 10),
                                        (45, 1e-5, 1e-3, 10), (100, 0.0, 3e-4, 10)):
            yield deepspeed("WarmupDecayLR", lead=1, total_num_steps=total, warmup_min_lr=low,
                            warmup_max_lr=high, warmup_num_steps=steps, warmup_type=kind)
        for total, low, end, steps in ((12, 0.0, 1e-4, 4), (45, 0.1, 0.05, 10),
                                       (100, 0.0, 1e-4, 10), (10, 0.0, 1e-4, 10)):
            yield deepspeed("WarmupCosineLR", lead=1, lr=6e-4, total_num_steps=total,
                            warmup_min_ratio=low, warmup_num_steps=steps, cos_min_ratio=end,
                            warmup_type=kind)
        # One step of warm-up: here the full rate from the first update on.
        yield deepspeed("WarmupLR", lead=1, first=2, warmup_min_lr=0.0, warmup_max_lr=1e-3,
                        warmup_num_steps=1, warmup_type=kind)
        yield deepspeed("WarmupDecayLR", lead=1, first=2, total_num_steps=20, warmup_min_lr=0.0,
                        warmup_max_lr=1e-3, warmup_num_steps=1, warmup_type=kind)
        yield deepspeed("WarmupCosineLR", lead=1, first=2, lr=6e-4, total_num_steps=20,
                        warmup_min_ratio=0.0, warmup_num_steps=1, cos_min_ratio=1e-4,
                        warmup_type=kind)


def cases():
    yield constant(1e-3)
    yield constant(1e-3, warmup_steps=10)
    yield step_lr(1e-3, step_size=7, gamma=0.1)
    yield step_lr(2e-2, step_size=1, gamma=0.93)
    linear = optimization.get_linear_schedule_with_warmup
    cosine = optimization.get_cosine_schedule_with_warmup
    restarts = optimization.get_cosine_with_hard_restarts_schedule_with_warmup
    for name, function, extra in (("linear", linear, {}), ("cosine", cosine, {}),
                                  ("cosine", cosine, {"num_cycles": 1.25}),
                                  ("cosine_with_restarts", restarts, {"num_cycles": 3})):
        for total, fields in ((50, {}), (50, {"warmup_steps": 10}), (45, {"warmup_ratio": 0.07}),
                              (30, {"warmup_steps": 30}), (40, {"warmup_steps": 2})):
            yield huggingface(name, function, 5e-4, total, **fields, **extra)
        yield huggingface(name, function, 5e-4, 50, first=1, warmup_steps=1, **extra)
    yield from warmups()
    cycle = {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 10}
    for fields in ({}, {"cycle_second_step_size": 23},
                   {"cycle_first_stair_count": 5},
                   {"cycle_second_step_size": 13, "cycle_first_stair_count": 4,
                    "cycle_second_stair_count": 3},
                   {"decay_step_size": 5, "decay_lr_rate": 0.5},
                   {"cycle_second_step_size": 15, "decay_step_size": 4, "decay_lr_rate": 0.25,
                    "decay_mom_rate": 0.01, "cycle_min_mom": 0.6, "cycle_max_mom": 0.85}):
        yield deepspeed("OneCycle", **cycle, **fields)
    for staircase in (False, True):
        yield deepspeed("LRRangeTest", lr_range_test_min_lr=1e-4, lr_range_test_step_size=7,
                        lr_range_test_step_rate=1.5, lr_range_test_staircase=staircase)


def main():
    warnings.simplefilter("ignore")
    folder = golden.output_folder(__doc__.splitlines()[0])
    golden.write(folder / "schedules.json", {
        "versions": golden.versions("torch", "transformers", "deepspeed"),
        "cases": list(cases())})


if __name__ == "__main__":
    main()
