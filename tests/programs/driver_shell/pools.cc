// Memory pools, and memory in the order of streams.
#include <set>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

CUmemoryPool DefaultPool() {
  CUdevice device = 0;
  CUmemoryPool pool = nullptr;
  Call("cuCtxGetDevice", &device);
  Call("cuDeviceGetDefaultMemPool", &pool, device);
  return pool;
}

// pool_keep BYTES: the default pool keeps so much of what is freed; it gives the rest back now.
Reply Keep(const Words& words) {
  std::uint64_t keep = NumberAt(words, 0);
  const CUresult result =
      Call("cuMemPoolSetAttribute", DefaultPool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, static_cast<void*>(&keep));
  return result == CUDA_SUCCESS ? Call("cuMemPoolTrimTo", DefaultPool(), std::size_t{keep}) : result;
}

// pool_figures: what the default pool has.
Reply Figures(const Words&) {
  Reply reply(CUDA_SUCCESS);
  for (const auto& [name, attribute] : {std::pair{"used", CU_MEMPOOL_ATTR_USED_MEM_CURRENT},
                                        std::pair{"reserved", CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT}}) {
    std::uint64_t value = 0;
    const CUresult result = Call("cuMemPoolGetAttribute", DefaultPool(), attribute, static_cast<void*>(&value));
    if (result != CUDA_SUCCESS) return result;
    reply.Add(name, static_cast<long long>(value));
  }
  return reply;
}

// in_order ROUNDS BYTES: in two streams by turns, without waiting: allocates, fills, reads and frees. Says how many
// rounds read a wrong word, and how many addresses there were.
Reply InOrder(const Words& words) {
  const auto rounds = static_cast<std::uint32_t>(NumberAt(words, 0));
  const std::size_t bytes = NumberAt(words, 1);
  std::vector<std::uint32_t> found(2 * std::size_t{rounds});
  std::set<CUdeviceptr> addresses;
  CUstream streams[2] = {};
  CUresult result = CUDA_SUCCESS;
  const auto step = [&](auto call) {
    if (result == CUDA_SUCCESS) result = call();
  };
  for (CUstream& stream : streams) step([&] { return Call("cuStreamCreate", &stream, 1u); });
  for (std::uint32_t round = 0; round < rounds; ++round) {
    CUstream stream = streams[round % 2];
    CUdeviceptr address = 0;
    step([&] { return Call("cuMemAllocAsync", &address, bytes, stream); });
    step([&] { return Call("cuMemsetD32Async", address, round + 1, bytes / 4, stream); });
    for (const std::size_t last : {std::size_t{0}, std::size_t{1}})
      step([&] {
        return Call("cuMemcpyDtoHAsync_v2", static_cast<void*>(&found[2 * round + last]), address + last * (bytes - 4),
                    sizeof found[0], stream);
      });
    step([&] { return Call("cuMemFreeAsync", address, stream); });
    addresses.insert(address);
  }
  for (CUstream stream : streams) step([&] { return Call("cuStreamSynchronize", stream); });
  for (CUstream stream : streams) step([&] { return Call("cuStreamDestroy_v2", stream); });
  long long wrong = 0;
  for (std::uint32_t i = 0; i < found.size(); ++i) wrong += found[i] != i / 2 + 1;
  return Reply(result).Add("wrong", wrong).Add("addresses", static_cast<long long>(addresses.size()));
}

}  // namespace

void AddPoolCommands(Commands& commands) {
  commands["pool_keep"] = Keep;
  commands["pool_figures"] = Figures;
  commands["in_order"] = InOrder;
}

}  // namespace tessera::shell
