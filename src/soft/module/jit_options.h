#pragma once

#include <string>

#include "cuda/cuda_abi.h"

namespace tessera::soft {

// The options of calls that compile: all are accepted, those that ask for answers get them.
class JitOptions {
 public:
  JitOptions(unsigned count, cuda::CUjit_option* options, void** values)
      : count_(options != nullptr && values != nullptr ? count : 0), options_(options), values_(values) {}

  // Fills the error log buffer, if there is one, with as much of `log` as fits; the info log and the compile time are
  // empty. Sizes become the bytes filled.
  void Answer(const std::string& log) const;

 private:
  void** Find(cuda::CUjit_option option) const;
  void FillLog(cuda::CUjit_option buffer, cuda::CUjit_option size, const std::string& log) const;

  const unsigned count_;
  cuda::CUjit_option* const options_;
  void** const values_;
};

}  // namespace tessera::soft
