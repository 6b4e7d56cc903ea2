#include "shim/device/attachment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fork_mutex.h"
#include "shim/device/reserved_sms.h"
#include "shim/device/ties.h"
#include "shim/gate/capture.h"
#include "shim/load/real.h"
#include "shim/process/say.h"
#include "shim/session/session.h"
#include "shim/use/graph_use.h"

namespace tessera::shim {

using namespace cuda;

std::atomic<Attachment*> Attachment::all_[kMaxDevices];

namespace {

ForkMutex making;  // taken before DaemonWatch's

// For programs that want the driver's own memory.
bool SwapIsOff() {
  const char* wish = getenv("TESSERA_SWAP");
  return wish && strcmp(wish, "0") == 0;
}

// As many as it may use: in a space perhaps fewer than the GPU has.
void ReportSms(wire::Page& page, CUdevice device) {
  if (HasReservedSms()) return ReportReservedSms(page, device);
  // It stays what it is, and is asked for once: while the program is suspended the driver answers nothing.
  static std::atomic<int> counts[Attachment::kMaxDevices];
  int count = counts[device].load(std::memory_order_relaxed);
  if (count == 0) {
    REAL_AS(cuDeviceGetAttribute, int*, int, CUdevice)(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    counts[device].store(count, std::memory_order_relaxed);
  }
  page.sms.store(static_cast<unsigned>(count), std::memory_order_relaxed);
}

}  // namespace

Attachment* Attachment::Of(CUdevice device) {
  if (!Session::Instance().Managed() || device < 0 || device >= kMaxDevices) return nullptr;
  if (Attachment* made = all_[device].load(std::memory_order_acquire)) return made;
  return Make(device);
}

Attachment* Attachment::Make(CUdevice device) {
  static bool refused[kMaxDevices];  // the daemon's "no" stands, and is said once; guarded by `making`
  const MutexLock lock(making);
  if (Attachment* made = all_[device].load(std::memory_order_acquire)) return made;
  if (refused[device]) return nullptr;
  CUuuid uuid;
  if (REAL_AS(cuDeviceGetUuid_v2, CUuuid*, CUdevice)(&uuid, device) != CUDA_SUCCESS) return nullptr;
  wire::Uuid wire_uuid;
  memcpy(wire_uuid.bytes, uuid.bytes, sizeof wire_uuid.bytes);
  auto* attachment = new Attachment(device, wire_uuid);
  UniqueFd line;
  Attaching attaching = attachment->Attach(&line, false);
  // The daemon may have been restarted since cuInit, and before the first pacer nobody looks after that.
  if (attaching == Attaching::kGone && DaemonWatch::Instance().Reconnect())
    attaching = attachment->Attach(&line, false);
  if (attaching != Attaching::kDone) {
    refused[device] = attaching == Attaching::kRefused;
    delete attachment;
    return nullptr;
  }
  attachment->pacer_.Start();
  if (attachment->room_.Swaps() && !SwapIsOff())
    attachment->paging_ =
        Paging::Make(attachment->memory_, attachment->room_, device, attachment->gpu_bytes_, std::move(line));
  DaemonWatch::Instance().Add(*attachment);
  all_[device].store(attachment, std::memory_order_release);
  return attachment;
}

Attachment::Attaching Attachment::Attach(UniqueFd* line, bool works) {
  const MutexLock holding(page_.holding);
  const wire::Uuid uuid = UuidNow();
  wire::Attach request{.gpu = uuid,
                       .memory_bytes = memory_.Held(),
                       .room_bytes = room_.Held(),
                       .unsafe_bytes = room_.Unsafe(),
                       .contexts = memory_.Contexts(),
                       .works = works,
                       .away = page_.Get() ? page_->away.load() : 0};
  wire::SetText(request.vgpu, vgpu_);
  wire::Attached answer;
  wire::Header header{};
  UniqueFd fds[2];
  if (!Session::Instance().Ask(wire::Make(request), answer, header, fds) || !fds[0])
    return header.type == wire::Refused::kType ? Attaching::kRefused : Attaching::kGone;
  wire::Page* page = FollowedPage::Map(fds[0]);
  if (!page) return Attaching::kRefused;
  *line = std::move(fds[1]);  // may be missing although memory is swapped: the pager asks for another
  if (gpu_bytes_ == 0) gpu_bytes_ = answer.memory_total;
  vgpu_ = wire::TextOf(answer.vgpu);
  memory_.Attached(answer.context_bytes);
  room_.Attached(answer.swaps != 0);
  page_.Follow(page, header.gpu);
  memory_.Report();
  Report();
  return Attaching::kDone;
}

// The GPU of its work, which may have moved. The driver's answer for the device stays as it was.
wire::Uuid Attachment::UuidNow() const {
  const wire::Page* page = page_.Get();
  const std::uint64_t words[2] = {page ? page->gpu_uuid[0].load() : 0, page ? page->gpu_uuid[1].load() : 0};
  if (words[0] == 0 && words[1] == 0) return uuid_;
  wire::Uuid uuid;
  memcpy(uuid.bytes, words, sizeof uuid.bytes);
  return uuid;
}

// Another page is followed: it says what this process has.
void Attachment::Report() {
  ReportSms(*page_.Get(), device_);
  ReportTies(*page_.Get());
  room_.Report();
  gates_.Calls().Report();
}

void Attachment::NoteUse(const GatedCall& call) {
  if (!host_.Any() || !paging_) return;
  pager::Heap& heap = paging_->Heap();
  const Nanos now = MonotonicNow();
  bool named = false;
  if (call.Symbol() == k_cuGraphLaunch || call.Symbol() == k_cuGraphLaunch_ptsz) {
    named = TouchGraph(reinterpret_cast<CUgraphExec>(call.Argument(0)), heap, now);
  } else if (!AnyCapture()) {
    // While a stream captures, a question about a function might load it, which some captures forbid.
    named = TouchOperands(call, heap, now);
  }
  heap.Heat().NoteSubmission(named, now);
}

// ---- the daemon goes and comes ----

void Attachment::Retreat() {
  if (paging_) paging_->Retreat();
}

bool Attachment::Reattach() {
  wire::Page* before = page_.Get();
  const bool attached = gates_.Reattach([&](bool works) {
    UniqueFd line;
    if (Attach(&line, works) != Attaching::kDone) return false;
    if (paging_) paging_->Follow(std::move(line));
    return true;
  });
  if (attached) FollowedPage::Ring(before);
  return attached;
}

void Attachment::GoOnAlone(bool block) {
  wire::Page* before = page_.Get();
  const bool removed = page_.Removed();  // it has said so, and does not go on
  block = block || removed;
  const bool alone = gates_.GoOnAlone(block, [&] {
    bool safe = true;
    ForEach([&](const Attachment& other) { safe = safe && other.Safe(); });  // work on this GPU may reach theirs
    const MutexLock holding(page_.holding);
    // A program that is away waits for a daemon that brings it back.
    if (page_.FollowsOwn() || !safe || page_->away.load() != 0) return false;
    if (!removed)
      Say("the daemon has been gone for %lld s: %s", static_cast<long long>(Session::Instance().Grace() / kSecond),
          block ? "waiting until one answers" : "going on without limits of time");
    page_.FollowOwn(memory_.Returned(), block);
    Report();
    return true;
  });
  if (alone) FollowedPage::Ring(before);
}

void Attachment::AwaitMemory() {
  constexpr unsigned kBetweenLooksUs = 1'000;
  const auto all_safe = [] {
    bool safe = true;
    ForEach([&](const Attachment& each) { safe = safe && each.Safe(); });
    return safe;
  };
  if (all_safe()) return;
  gates_.Calls().Add(1);
  while (!all_safe() && gates_.Runs() && !page_.Removed()) {
    usleep(kBetweenLooksUs);
    DaemonWatch::Instance().Mind(MonotonicNow());
  }
  gates_.Calls().Add(-1);
}

void Attachment::Stop() {
  if (paging_) paging_->Stop();
  gates_.Stop();
}

void Attachment::AbandonAfterFork() {
  if (paging_) paging_->AbandonAfterFork();
  page_.AbandonAfterFork();
  gates_.AbandonAfterFork();
}

}  // namespace tessera::shim
