#pragma once

#include <atomic>
#include <cstdint>

#include "shim/session/followed_page.h"

namespace tessera::shim {

// The account of what memory.max counts: the bytes of its vGPU's memory that this process has taken on one GPU, and its
// contexts there. Any thread.
class MemoryAccount {
 public:
  explicit MemoryAccount(FollowedPage& page) : page_(page) {}
  MemoryAccount(const MemoryAccount&) = delete;

  // Takes `bytes` of the vGPU's memory. False: it would pass memory.max.
  bool Take(std::uint64_t bytes);
  void Give(std::uint64_t bytes);
  // A mapping is about to be made that leaves `bytes` of host memory blank if it goes out (pager::HeapFigures). False:
  // host memory would not hold what the programs of the GPU have. DropBlank, when the heap's figures have them, or when
  // it was not made after all. Two programs that ask at once may be in each other's way; then it asks once more, after
  // some milliseconds.
  bool TakeBlank(std::uint64_t bytes);
  void DropBlank(std::uint64_t bytes);
  // An allocation was refused: by memory.max, or because there was no room for it.
  void NoteRefused() { page_->oom_errors.fetch_add(1, std::memory_order_relaxed); }
  // A context is about to be made; the daemon knows how much memory one takes. kNo: it would pass memory.max, or the
  // GPU cannot have it. kWait: room for it is being made; the page's bell rings when it is worth asking again.
  enum class Answer { kYes, kNo, kWait };
  Answer AddContext();
  // A context has ended, or was not made after all. Whether the process has no other one on this GPU.
  bool DropContext();

  // memory.max and what is free below it, bytes.
  std::uint64_t Max() const { return page_->memory_max.load(std::memory_order_relaxed); }
  std::uint64_t Free() const;

  // Bytes and contexts that this process holds, for a new daemon.
  std::uint64_t Held() const TESSERA_REQUIRES(page_.holding) { return held_; }
  std::uint32_t Contexts() const TESSERA_REQUIRES(page_.holding) { return contexts_; }
  // A daemon that counts `context_bytes` for a context is followed from now on; nothing was returned to it yet.
  void Attached(std::uint64_t context_bytes) TESSERA_REQUIRES(page_.holding) {
    context_bytes_ = context_bytes;
    returned_ = 0;
  }
  // The page of that daemon is followed: it says what mappings are being made.
  void Report() TESSERA_REQUIRES(page_.holding) { page_->blank_planned = blank_planned_; }
  // Sum of the Return messages to the daemon.
  std::uint64_t Returned() const { return returned_; }

 private:
  Answer AskForBlank(std::uint64_t bytes);

  FollowedPage& page_;
  std::uint64_t held_ TESSERA_GUARDED_BY(page_.holding) = 0;  // bytes in use, without the contexts' own
  std::uint32_t contexts_ TESSERA_GUARDED_BY(page_.holding) = 0;
  std::uint64_t context_bytes_ TESSERA_GUARDED_BY(page_.holding) = 0;
  std::atomic<std::uint64_t> returned_{0};
  std::uint64_t blank_planned_ TESSERA_GUARDED_BY(page_.holding) = 0;
};

}  // namespace tessera::shim
