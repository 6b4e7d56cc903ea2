#pragma once

#include <utility>

#include "pager/chunks/sparse_memory.h"

namespace tessera::pager {

// Shared ownership of a SparseMemory under the heap's mutex, which counts without atomics. std::shared_ptr would bind
// the shim to a C library newer than 2.28.
class SparsePointer {
 public:
  SparsePointer() = default;
  static SparsePointer Make() {
    SparsePointer made;
    made.counted_ = new Counted;
    return made;
  }
  SparsePointer(const SparsePointer& other) : counted_(other.counted_) {
    if (counted_ != nullptr) ++counted_->owners;
  }
  SparsePointer(SparsePointer&& other) noexcept : counted_(std::exchange(other.counted_, nullptr)) {}
  SparsePointer& operator=(SparsePointer other) noexcept {
    std::swap(counted_, other.counted_);
    return *this;
  }
  ~SparsePointer() {
    if (counted_ != nullptr && --counted_->owners == 0) delete counted_;
  }

  explicit operator bool() const { return counted_ != nullptr; }
  SparseMemory* Get() const { return counted_ == nullptr ? nullptr : &counted_->memory; }
  SparseMemory* operator->() const { return &counted_->memory; }
  SparseMemory& operator*() const { return counted_->memory; }

 private:
  struct Counted {
    SparseMemory memory;
    int owners = 1;
  };
  Counted* counted_ = nullptr;
};

}  // namespace tessera::pager
