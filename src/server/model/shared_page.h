#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/page.h"
#include "wire/protocol.h"

namespace tessera::server {

// The contents of an order for the gate of one process (wire/page.h).
struct GateSetting {
  wire::GateOrder gate = wire::GateOrder::kClosed;
  Nanos window = 0;
  Nanos idle_grace = 0;
  bool operator==(const GateSetting&) const = default;
};

// The daemon's end of the page that it shares with one process for one GPU: a memfd that nobody can shrink, so that no
// program makes the daemon fault. Words of the program in it are claims; the daemon's own counters live here.
class SharedPage {
 public:
  static Result<SharedPage> Create(std::uint32_t gpu);
  SharedPage(SharedPage&& other) noexcept;
  SharedPage& operator=(SharedPage&&) = delete;
  ~SharedPage();

  int Fd() const { return fd_.Get(); }
  wire::Page& operator*() const { return *page_; }
  wire::Page* operator->() const { return page_; }

  // Writes an order. kWake also wakes who waits for one; kQuiet suits a process that has nothing waiting.
  enum class Bell { kWake, kQuiet };
  void Give(const GateSetting& setting, Bell bell = Bell::kWake);

  // The vGPU was removed by force: the program gets errors. Its gate is closed next, by an order.
  void SayRemoved() { page_->removed.store(1, std::memory_order_relaxed); }

  // The work of the device runs on this GPU from now on.
  void SayGpu(const wire::Uuid& uuid);

  // The SMs that are the program's from now on, and whether its work may run in all (`burst`); it takes them when its
  // work allows that.
  void GivePlace(wire::SmPlace place, bool burst);
  // Those in which its work runs, as it says; width 0: none yet. And where it should run: in its own while something
  // keeps its SMs.
  wire::SmPlace TakenPlace() const { return wire::SmPlace::Of(page_->sm_taken.load(std::memory_order_acquire)); }
  wire::SmPlace WantedPlace() const { return burst_ && !KeepsSms() ? wire::kAllSms : place_; }
  bool KeepsSms() const { return page_->sm_pins.load(std::memory_order_relaxed) != 0; }

  // The driver is about to save the program, and so on (wire::Page::away). The program is told at once.
  void SayAway(std::uint32_t word) {
    if (page_->away.exchange(word) != word) Ring();
  }

  // Wakes who waits for something else in the page.
  void Ring();

  // Changes how long the process is without work before it says Idle; no order for its threads.
  void SetIdleGrace(Nanos grace) { page_->idle_grace_ns.store(grace, std::memory_order_relaxed); }

  // Number of the last order, 0 before the first.
  std::uint32_t Epoch() const { return epoch_; }

 private:
  SharedPage(UniqueFd fd, wire::Page* page) : fd_(std::move(fd)), page_(page) {}
  UniqueFd fd_;
  wire::Page* page_;
  std::uint32_t epoch_ = 0;
  wire::SmPlace place_;  // as told last
  bool burst_ = false;
};

}  // namespace tessera::server
