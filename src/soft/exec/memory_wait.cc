#include "soft/exec/memory_wait.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "soft/device/address_map.h"
#include "soft/device/memory_steps.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr unsigned kConditionMask = 3;

bool Waits(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

bool Writes(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

std::size_t BytesOf(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8;
}

CUresult Check(const CUstreamBatchMemOpParams& operation) {
  const auto type = operation.operation;
  if (type == CU_STREAM_MEM_OP_BARRIER) return CUDA_SUCCESS;
  if (type == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) return CUDA_ERROR_NOT_SUPPORTED;
  if (!Waits(type) && !Writes(type)) return CUDA_ERROR_INVALID_VALUE;
  const CUstreamMemOpValueParams& value = operation.waitValue;
  if (Waits(type) && (value.flags & CU_STREAM_WAIT_VALUE_FLUSH)) return CUDA_ERROR_NOT_SUPPORTED;
  const unsigned highest =
      Waits(type) ? unsigned{CU_STREAM_WAIT_VALUE_NOR} : unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER};
  if (value.flags > highest) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t bytes = BytesOf(type);
  return value.address % bytes == 0 && AddressMap::Get().Covers(value.address, bytes) ? CUDA_SUCCESS
                                                                                      : CUDA_ERROR_INVALID_VALUE;
}

template <typename Value>
bool Holds(Value value, Value wanted, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (value & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<Value>(~(value | wanted)) != 0;
    default:  // cyclic: the value is ahead by less than half the range
      return static_cast<std::make_signed_t<Value>>(value - wanted) >= 0;
  }
}

template <typename Value>
CUresult ExecuteInStep(const CUstreamMemOpValueParams& operation, Value value) {
  if (!AddressMap::Get().Covers(operation.address, sizeof(Value))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  std::atomic_ref<Value> memory(*reinterpret_cast<Value*>(operation.address));
  if (Writes(operation.operation)) {
    memory.store(value);
    return CUDA_SUCCESS;
  }
  return Holds(memory.load(), value, operation.flags & kConditionMask) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult Execute(const CUstreamBatchMemOpParams& operation, MemorySteps& steps) {
  if (!steps.TryBegin()) return CUDA_ERROR_NOT_READY;
  const CUstreamMemOpValueParams& value = operation.waitValue;
  const CUresult result = BytesOf(operation.operation) == 4 ? ExecuteInStep<std::uint32_t>(value, value.value)
                                                            : ExecuteInStep<std::uint64_t>(value, value.value64);
  steps.End();
  return result;
}

}  // namespace

CUresult CheckMemoryOperations(const std::vector<CUstreamBatchMemOpParams>& operations) {
  for (const auto& operation : operations) {
    if (const CUresult result = Check(operation); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

std::function<CUresult(MemorySteps&)> MemoryOperations(std::vector<CUstreamBatchMemOpParams> operations) {
  return [operations = std::move(operations), next = std::size_t{0}](MemorySteps& steps) mutable {
    for (; next < operations.size(); ++next) {
      const auto type = operations[next].operation;
      if (!Waits(type) && !Writes(type)) continue;
      if (const CUresult result = Execute(operations[next], steps); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  };
}

}  // namespace tessera::soft
