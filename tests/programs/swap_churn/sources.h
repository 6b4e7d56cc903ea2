#pragma once

#include <map>
#include <vector>

#include "buffer.h"
#include "dice.h"

namespace tessera::churn {

// cuMemAlloc.
class Heap : public Source {
 public:
  Heap(const Gpu& gpu, Dice& dice) : gpu_(gpu), dice_(dice) {}
  const char* Name() const override { return "heap"; }
  cuda::CUresult Make(Buffer& buffer) override;
  void Free(Buffer& buffer) override;

 private:
  const Gpu& gpu_;
  Dice& dice_;
};

// Memory in the order of the stream: the default pool, and pools that come and go, also with memory in them.
class Pools : public Source {
 public:
  Pools(const Gpu& gpu, Dice& dice) : gpu_(gpu), dice_(dice) {}
  const char* Name() const override { return "pool"; }
  cuda::CUresult Make(Buffer& buffer) override;
  void Free(Buffer& buffer) override;
  // Makes a pool, destroys one, or has one keep or give back what is freed.
  void Change();

 private:
  const Gpu& gpu_;
  Dice& dice_;
  std::vector<cuda::CUmemoryPool> pools_;
};

// What an allocation node of a graph leaves to the program.
class GraphMemory : public Source {
 public:
  explicit GraphMemory(const Gpu& gpu) : gpu_(gpu) {}
  const char* Name() const override { return "graph"; }
  cuda::CUresult Make(Buffer& buffer) override;
  void Free(Buffer& buffer) override;

 private:
  const Gpu& gpu_;
  std::map<cuda::CUdeviceptr, cuda::CUgraphExec> made_by_;
};

}  // namespace tessera::churn
