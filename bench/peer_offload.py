"""DeepSpeed's CPUAdam beside zero-bench offload, in turns: bf16 gradients in, bf16 weights out.

usage: peer_offload.py ZERO_BENCH ELEMENTS THREADS ROUNDS
ZeRO-Offload keeps fp32 masters and gradients for CPUAdam, so that its step is three passes: the
gradients to fp32, the update, the masters to bf16. Here they are one. Each round times three steps
of both after one that is not timed, and compares the fastest; "nanoseconds" are per parameter,
"ratio" is theirs by ours.
"""

import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time

STEPS = 3


class CpuAdam:
    def __init__(self, elements):
        import torch
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        self.gradient = torch.full((elements,), 0.01, dtype=torch.bfloat16)
        self.weight = torch.full((elements,), 1.0, dtype=torch.bfloat16)
        self.master = torch.nn.Parameter(self.weight.float())
        self.master.grad = torch.zeros(elements)
        self.optimizer = DeepSpeedCPUAdam([self.master], lr=1e-3, weight_decay=0.01,
                                          adamw_mode=True)

    def step(self):
        self.master.grad.copy_(self.gradient)
        self.optimizer.step()
        self.weight.copy_(self.master.data)

    def seconds(self):
        begin = time.perf_counter()
        self.step()
        return time.perf_counter() - begin


def own_nanoseconds(program, elements, threads):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        subprocess.run([program, "offload", "--elements", str(elements), "--threads", str(threads),
                        "--repeats", str(STEPS), "--json", file.name],
                       check=True, stdout=subprocess.DEVNULL)
        rows = {(row["gradients"], row["master"]): row["min_ns"]
                for row in map(json.loads, file)}
    return rows[("bf16", "fp32")], rows[("bf16", "split")]


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    program = sys.argv[1]
    elements, threads, rounds = map(int, sys.argv[2:])
    import torch
    logging.disable(logging.WARNING)  # DeepSpeed prints them where the results go
    torch.set_num_threads(threads)
    peer = CpuAdam(elements)
    ratios = []
    for _ in range(rounds):
        peer.step()
        theirs = min(peer.seconds() for _ in range(STEPS)) / elements * 1e9
        ours, split = own_nanoseconds(program, elements, threads)
        ratios.append(theirs / ours)
        print(json.dumps({"elements": elements, "threads": threads, "deepspeed_nanoseconds": theirs,
                          "zero_nanoseconds": ours, "zero_split_nanoseconds": split,
                          "ratio": ratios[-1]}), flush=True)
    print(json.dumps({"median_ratio": statistics.median(ratios), "least_ratio": min(ratios)}))


if __name__ == "__main__":
    main()
