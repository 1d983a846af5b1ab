"""One timing of PyTorch's fused CPU AdamW and DeepSpeed's CPUAdam: a line of JSON for each.

usage: peer_optimizers.py ELEMENTS THREADS REPEATS [torch] [deepspeed]
"nanoseconds" is per parameter, the fastest of REPEATS steps after one that is not timed, on fp32
parameters, gradients and moments.
"""

import json
import logging
import sys
import time

import torch


def fused_adamw(parameter):
    return torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.01, fused=True)


def cpu_adam(parameter):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam([parameter], lr=1e-3, weight_decay=0.01, adamw_mode=True)


def main():
    logging.disable(logging.WARNING)  # DeepSpeed prints them where the results go
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    elements, threads, repeats = map(int, sys.argv[1:4])
    wanted = sys.argv[4:] or ["torch", "deepspeed"]
    torch.set_num_threads(threads)
    for name, make in (("torch", fused_adamw), ("deepspeed", cpu_adam)):
        if name not in wanted:
            continue
        parameter = torch.nn.Parameter(torch.full((elements,), 1.0))
        parameter.grad = torch.full((elements,), 0.01)
        optimizer = make(parameter)
        optimizer.step()
        seconds = []
        for _ in range(repeats):
            begin = time.perf_counter()
            optimizer.step()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({"optimizer": name, "elements": elements, "threads": threads,
                          "nanoseconds": min(seconds) / elements * 1e9}), flush=True)


if __name__ == "__main__":
    main()
