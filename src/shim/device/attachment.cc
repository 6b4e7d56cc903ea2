#include "shim/device/attachment.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <string>

#include "shim/gate/markers.h"
#include "shim/load/real.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

using namespace cuda;

std::atomic<Attachment*> attachments[kMaxDevices];

Attachment* Attachment::Of(CUdevice device) {
  if (!Session::Instance().Managed() || device < 0 || device >= kMaxDevices) return nullptr;
  if (Attachment* made = attachments[device].load(std::memory_order_acquire)) return made;
  return Make(device);
}

Attachment* Attachment::Make(CUdevice device) {
  static std::mutex making;
  static bool refused[kMaxDevices];  // the daemon's "no" stands, and is said once
  std::lock_guard lock(making);
  if (Attachment* made = attachments[device].load(std::memory_order_acquire)) return made;
  if (refused[device]) return nullptr;
  CUuuid uuid;
  if (REAL_AS(cuDeviceGetUuid_v2, CUuuid*, CUdevice)(&uuid, device) != CUDA_SUCCESS) return nullptr;
  wire::Uuid wire_uuid;
  memcpy(wire_uuid.bytes, uuid.bytes, sizeof wire_uuid.bytes);
  auto* attachment = new Attachment(device, wire_uuid);
  UniqueFd line;
  Attaching attaching = attachment->Attach(&line);
  // The daemon may have been restarted since cuInit, and before the first pacer nobody looks after that.
  if (attaching == Attaching::kGone && Reconnect()) attaching = attachment->Attach(&line);
  if (attaching != Attaching::kDone) {
    refused[device] = attaching == Attaching::kRefused;
    delete attachment;
    return nullptr;
  }
  attachment->StartPacer();
  // For programs that want the driver's own memory.
  const char* wish = getenv("TESSERA_SWAP");
  if (attachment->swaps_ && !(wish && strcmp(wish, "0") == 0))
    attachment->paging_ = Paging::Make(*attachment, device, std::move(line));
  attachments[device].store(attachment, std::memory_order_release);
  return attachment;
}

// Asks the daemon for the page. Also after a reconnect, when it says what the process already holds.
// `line`: the one to the mover, where memory may be swapped.
Attachment::Attaching Attachment::Attach(UniqueFd* line, bool works) {
  std::lock_guard holding(holding_);
  wire::Attach request{.gpu = uuid_,
                       .memory_bytes = memory_held_,
                       .room_bytes = room_held_ + heap_moved_in_ - heap_moved_out_,
                       .unsafe_bytes = heap_unsafe_,
                       .contexts = contexts_held_,
                       .works = works};
  wire::Attached answer;
  wire::Header header{};
  UniqueFd fds[2];
  const UniqueFd& fd = fds[0];
  if (!Session::Instance().Ask(wire::Make(request), answer, header, fds) || !fd)
    return header.type == wire::Refused::kType ? Attaching::kRefused : Attaching::kGone;
  void* memory = mmap(nullptr, wire::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.Get(), 0);
  if (memory == MAP_FAILED) {
    Session::Instance().Complain(std::string("cannot map the daemon's page: ") + strerror(errno));
    return Attaching::kRefused;
  }
  auto* page = static_cast<wire::Page*>(memory);
  if (page->magic != wire::kPageMagic || page->version != wire::kProtocolVersion) {
    Session::Instance().Complain(
        "the daemon's page has another layout; restart tesserad or this program with one version of Tessera");
    munmap(memory, wire::kPageBytes);
    return Attaching::kRefused;
  }
  gpu_ = header.gpu;
  context_bytes_ = answer.context_bytes;
  memory_total_ = answer.memory_total;
  swaps_ = answer.swaps != 0;  // the line may be missing: the pager asks for another
  *line = std::move(fds[1]);
  memory_returned_ = 0;
  moved_out_before_ = heap_moved_out_;  // nothing is moved meanwhile: it has no line
  moved_in_before_ = heap_moved_in_;
  on_fallback_ = false;
  Adopt(page);
  return Attaching::kDone;
}

// With holding_ held, and mutex_ where gates may exist: follows another page from now on. The old one stays mapped: a
// thread may be looking at it.
void Attachment::Adopt(wire::Page* page) {
  for (Gate* gate : gates_) Close(*gate);
  page_.store(page, std::memory_order_release);
  ReportRoom();
  for (Gate* gate : gates_) {
    gate->epoch = &page->epoch;
    Close(*gate);
  }
}

Gate* Attachment::GateOf(CUcontext context) {
  std::lock_guard lock(mutex_);
  for (Gate* gate : gates_)
    if (gate->context == context) return gate;
  Gate* gate;
  if (spare_.empty()) {
    gate = new Gate{.epoch = &Page()->epoch};
    gate->attachment = this;
    gate->markers = new Markers(*gate);
  } else {
    gate = spare_.back();
    spare_.pop_back();
    gate->epoch = &Page()->epoch;
  }
  gate->context = context;
  Close(*gate);
  gates_.push_back(gate);
  return gate;
}

// The context and all that ran in it are gone.
void Attachment::Forget(CUcontext context) {
  for (std::size_t i = 0; i < gates_.size(); ++i) {
    Gate* gate = gates_[i];
    if (gate->context != context) continue;
    Close(*gate);
    gate->context = nullptr;
    gate->markers->Reset();
    gates_[i] = gates_.back();
    gates_.pop_back();
    spare_.push_back(gate);
    return;
  }
}

// ---- memory ----

bool Attachment::TakeMemory(std::uint64_t bytes) {
  std::lock_guard holding(holding_);
  wire::Page* page = Page();
  std::int64_t credit = page->memory_credit.load(std::memory_order_relaxed);
  while (credit >= 0 && static_cast<std::uint64_t>(credit) >= bytes) {
    if (page->memory_credit.compare_exchange_weak(credit, credit - static_cast<std::int64_t>(bytes))) {
      memory_held_ += bytes;
      return true;
    }
  }
  wire::Reserved answer;
  wire::Header header;
  Session& session = Session::Instance();
  if (session.Ask(wire::Make(wire::Reserve{.bytes = bytes}, gpu_), answer, header)) {
    if (answer.bytes < bytes) {
      page->oom_errors.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } else {
    // No daemon: what it last said was free is ours to use, nobody else of this process's page can.
    std::uint64_t free = page->memory_available.load();
    do {
      if (free < bytes) return false;
    } while (!page->memory_available.compare_exchange_weak(free, free - bytes));
  }
  memory_held_ += bytes;
  return true;
}

void Attachment::GiveMemory(std::uint64_t bytes) {
  std::lock_guard holding(holding_);
  wire::Page* page = Page();
  memory_held_ -= bytes;
  const std::int64_t keep = page->memory_credit_keep.load(std::memory_order_relaxed);
  std::int64_t credit = page->memory_credit.fetch_add(bytes) + static_cast<std::int64_t>(bytes);
  while (credit > keep) {
    if (!page->memory_credit.compare_exchange_weak(credit, keep)) continue;
    const auto returned = static_cast<std::uint64_t>(credit - keep);
    memory_returned_ += returned;
    if (Session::Instance().Tell(wire::Make(wire::Return{.bytes = returned}, gpu_))) return;
    // Nobody took it, so it is still this process's to use.
    memory_returned_ -= returned;
    page->memory_credit.fetch_add(credit - keep);
    return;
  }
}

bool Attachment::AddContext() {
  std::lock_guard holding(holding_);
  wire::Reserved answer;
  wire::Header header;
  const bool asked = Session::Instance().Ask(wire::Make(wire::Context{.delta = 1}, gpu_), answer, header);
  if (asked && answer.bytes == 0 && context_bytes_ > 0) {
    Page()->oom_errors.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  ++contexts_held_;
  return true;
}

void Attachment::DropContext() {
  std::lock_guard holding(holding_);
  --contexts_held_;
  Session::Instance().Tell(wire::Make(wire::Context{.delta = -1}, gpu_));
}

std::uint64_t Attachment::MemoryFree() const {
  const wire::Page* page = Page();
  const std::int64_t credit = page->memory_credit.load(std::memory_order_relaxed);
  // What was freed a moment ago may not have reached the daemon; the program must see it all the same.
  const std::uint64_t on_its_way = memory_returned_ - page->memory_returned.load(std::memory_order_relaxed);
  const std::uint64_t free =
      page->memory_available.load(std::memory_order_relaxed) + (credit > 0 ? credit : 0) + on_its_way;
  return std::min(free, page->memory_max.load(std::memory_order_relaxed));
}

}  // namespace tessera::shim
