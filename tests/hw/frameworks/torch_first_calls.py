"""PyTorch that rests again and again, long enough to be suspended, and begins with another call each time."""
import sys
import time

import torch

REST_S = float(sys.argv[1])

numbers = torch.arange(1 << 20, dtype=torch.int64, device="cuda")
host = torch.empty(1 << 10, dtype=torch.int64, pin_memory=True)
event = torch.cuda.Event()
event.record()
static = torch.zeros(1 << 10, dtype=torch.int64, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    static += 1

CALLS = {
    "event query": event.query,
    "stream query": torch.cuda.current_stream().query,
    "synchronize": torch.cuda.synchronize,
    "mem_get_info": lambda: torch.cuda.mem_get_info()[1] > 0,
    "kernel": lambda: int((numbers * 2).sum()),
    "copy out": lambda: int(numbers[:1024].cpu().sum()),
    "copy in": lambda: host.to("cuda", non_blocking=True).numel(),
    "graph": graph.replay,
    "new stream": lambda: torch.cuda.Stream(priority=-1).query(),
    "allocation": lambda: torch.empty(300 << 20, dtype=torch.uint8, device="cuda").numel(),
    "free": torch.cuda.empty_cache,
    "pinned": lambda: torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True).numel(),
    "new library": lambda: bool(torch.linalg.inv(torch.eye(8, device="cuda")).sum() == 8),
}

for name, call in CALLS.items():
    torch.cuda.synchronize()
    time.sleep(REST_S)
    begin = time.monotonic()
    try:
        call()
    except Exception as error:  # noqa: BLE001  (both runs say the same)
        print(name, type(error).__name__)
    print(f"{name}: {time.monotonic() - begin:.2f} s", file=sys.stderr, flush=True)
    print(name, int(numbers.sum()), flush=True)
print("graph", int(static.sum()))
