// The cost of a call of the resource manager, in ns: "ioctl_cost COUNT". A control that does nothing but answer, and a
// client made and freed again; median and p99 of each, as "# name value".
#include <algorithm>
#include <vector>

#include "clock.h"
#include "rm.h"

template <typename Call>
void Measure(const char* name, int count, Call call) {
  for (int i = 0; i < count / 10; ++i) call();
  std::vector<double> ns;
  for (int i = 0; i < count; ++i) {
    const double begin = NowNs();
    call();
    ns.push_back(NowNs() - begin);
  }
  std::sort(ns.begin(), ns.end());
  printf("# %s_p50 %.0f\n# %s_p99 %.0f\n", name, ns[ns.size() / 2], name, ns[ns.size() * 99 / 100]);
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 20000;
  const RmClient rm;
  uint32_t worst = abi::kOk;
  Measure("control", count, [&] {
    uint32_t ids[32] = {};
    worst = std::max(worst, RmControl(rm.File(), rm.Root(), rm.Root(), abi::kGetAttachedIds, ids, sizeof ids));
  });
  Measure("alloc_free", count / 10, [&] {
    uint32_t root = 0;
    worst = std::max(worst, RmAlloc(rm.File(), 0, 0, root, abi::kRoot, &root, sizeof root));
    worst = std::max(worst, RmFree(rm.File(), root, 0, root));
  });
  printf("worst status %#x\n", worst);
  return worst == abi::kOk ? 0 : 1;
}
