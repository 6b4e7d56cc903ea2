"""After tensors were freed between others that stay, PyTorch gets all that is free, less 2 %, in one tensor."""
import torch


def fill(freed, kept):
    """Tensors of these sizes in turn until the memory is full; the first kind is freed."""
    goes, stays = [], []
    try:
        while True:
            goes.append(torch.empty(freed, dtype=torch.uint8, device="cuda"))
            for size in kept:
                stays.append(torch.full((size,), len(stays) % 251, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    del goes
    torch.cuda.empty_cache()
    return stays


def main():
    torch.cuda.init()
    right = True
    for freed, kept in ((20 << 20, [2 << 20]), (120 << 20, [2 << 20]), (30 << 20, [900 << 10, 500 << 10])):
        stays = fill(freed, kept)
        free, _ = torch.cuda.mem_get_info()
        block = torch.empty(free * 98 // 100, dtype=torch.uint8, device="cuda")
        print(f"# free_{freed >> 20} {free}")
        print(f"# block_{freed >> 20} {block.numel()}")
        del block
        right = right and all(bool((each == n % 251).all()) for n, each in enumerate(stays))
        del stays
        torch.cuda.empty_cache()
    print("all of it in one tensor, what stayed is right:", right)


main()
