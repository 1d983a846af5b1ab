"""One timing of PyTorch's fused CPU AdamW and DeepSpeed's CPUAdam: a line of JSON for each.

usage: peer_optimizers.py ELEMENTS THREADS REPEATS [torch] [deepspeed]
       peer_optimizers.py --rows FILE
"nanoseconds" is per parameter, the fastest of REPEATS steps after one that is not timed, on fp32
parameters, gradients and moments. The second form prints AdamW's rows of what zero-bench optimizer
wrote to FILE in the same way.
"""

import json
import logging
import sys
import time


def own_rows(path):
    with open(path, encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["optimizer"] == "adamw":
                print(json.dumps({"optimizer": "zero, " + row["master"],
                                  "elements": row["parameters"], "threads": row["threads"],
                                  "nanoseconds": row["min_ns"]}), flush=True)


def fused_adamw(parameter):
    import torch
    return torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.01, fused=True)


def cpu_adam(parameter):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam([parameter], lr=1e-3, weight_decay=0.01, adamw_mode=True)


def main():
    if sys.argv[1:2] == ["--rows"] and len(sys.argv) == 3:
        return own_rows(sys.argv[2])
    import torch
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
