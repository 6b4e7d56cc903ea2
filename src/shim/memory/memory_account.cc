#include "shim/memory/memory_account.h"

#include <unistd.h>

#include <algorithm>

#include "shim/memory/credit.h"
#include "shim/session/session.h"

namespace tessera::shim {

bool MemoryAccount::Take(std::uint64_t bytes) {
  const MutexLock holding(page_.holding);
  wire::Page* page = page_.Get();
  if (TakeCredit(page->memory_credit, bytes)) {
    held_ += bytes;
    return true;
  }
  wire::Reserved answer;
  wire::Header header;
  if (Session::Instance().Ask(wire::Make(wire::Reserve{.bytes = bytes}, page_.Gpu()), answer, header)) {
    if (answer.bytes < bytes) {
      NoteRefused();
      return false;
    }
  } else {
    // There is no daemon. The memory that it last said was free is for this process to use: only it has this page.
    std::uint64_t free = page->memory_available.load();
    do {
      if (free < bytes) return false;
    } while (!page->memory_available.compare_exchange_weak(free, free - bytes));
  }
  held_ += bytes;
  return true;
}

void MemoryAccount::Give(std::uint64_t bytes) {
  const MutexLock holding(page_.holding);
  wire::Page* page = page_.Get();
  held_ -= bytes;
  const std::int64_t keep = page->memory_credit_keep.load(std::memory_order_relaxed);
  std::int64_t credit = page->memory_credit.fetch_add(bytes) + static_cast<std::int64_t>(bytes);
  while (credit > keep) {
    if (!page->memory_credit.compare_exchange_weak(credit, keep)) continue;
    const auto returned = static_cast<std::uint64_t>(credit - keep);
    returned_ += returned;
    if (Session::Instance().Tell(wire::Make(wire::Return{.bytes = returned}, page_.Gpu()))) return;
    // No daemon took it, so it is still this process's to use.
    returned_ -= returned;
    page->memory_credit.fetch_add(credit - keep);
    return;
  }
}

bool MemoryAccount::TakeBlank(std::uint64_t bytes) {
  Answer answer = AskForBlank(bytes);
  if (answer == Answer::kWait) {
    // Not all at the same time again.
    constexpr useconds_t kStepUs = 1000, kSteps = 16;
    usleep(kStepUs * (1 + static_cast<useconds_t>(getpid()) % kSteps));
    answer = AskForBlank(bytes);
  }
  return answer == Answer::kYes;
}

MemoryAccount::Answer MemoryAccount::AskForBlank(std::uint64_t bytes) {
  const MutexLock holding(page_.holding);
  page_->blank_planned = blank_planned_ += bytes;  // first: two programs that ask at once see each other
  wire::Reserved answer;
  wire::Header header;
  const bool asked = Session::Instance().Ask(wire::Make(wire::Blank{.bytes = bytes}, page_.Gpu()), answer, header);
  if (!asked || answer.bytes >= bytes) return Answer::kYes;
  page_->blank_planned = blank_planned_ -= bytes;
  return answer.wait != 0 ? Answer::kWait : Answer::kNo;
}

void MemoryAccount::DropBlank(std::uint64_t bytes) {
  const MutexLock holding(page_.holding);
  page_->blank_planned = blank_planned_ -= bytes;
}

MemoryAccount::Answer MemoryAccount::AddContext() {
  const MutexLock holding(page_.holding);
  wire::Reserved answer;
  wire::Header header;
  const bool asked = Session::Instance().Ask(wire::Make(wire::Context{.delta = 1}, page_.Gpu()), answer, header);
  if (asked && answer.bytes == 0 && answer.wait != 0) return Answer::kWait;
  if (asked && answer.bytes == 0 && context_bytes_ > 0) {
    NoteRefused();
    return Answer::kNo;
  }
  ++contexts_;
  return Answer::kYes;
}

bool MemoryAccount::DropContext() {
  const MutexLock holding(page_.holding);
  --contexts_;
  Session::Instance().Tell(wire::Make(wire::Context{.delta = -1}, page_.Gpu()));
  return contexts_ == 0;
}

std::uint64_t MemoryAccount::Free() const {
  const wire::Page* page = page_.Get();
  const std::int64_t credit = page->memory_credit.load(std::memory_order_relaxed);
  // Memory freed a moment ago may not have reached the daemon; the program must see it as free all the same.
  const std::uint64_t on_its_way = returned_ - page->memory_returned.load(std::memory_order_relaxed);
  const std::uint64_t free =
      page->memory_available.load(std::memory_order_relaxed) + (credit > 0 ? credit : 0) + on_its_way;
  return std::min(free, page->memory_max.load(std::memory_order_relaxed));
}

}  // namespace tessera::shim
