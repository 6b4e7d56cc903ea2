// The keeper of a GPU's gates, with the test in the place of the pacer and of the daemon that writes the page.
#pragma once

#include <atomic>
#include <thread>

#include "shim/gate/gate_keeper.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {

class GateKeeperTest : public ShimFixture {
 protected:
  using GateOrder = wire::GateOrder;

  static inline std::atomic<Nanos> the_time;
  static inline std::atomic<int> asked;  // how often a keeper looked at the clock: once each time that a thread tries
                                         // to pass
  static Nanos Now() {
    ++asked;
    return the_time;
  }
  // Returns when a thread has tried in vain to pass, and nobody but it asks for the time.
  static void AwaitTries() {
    const int before = asked;
    while (asked < before + 3) std::this_thread::yield();
  }

  GateKeeperTest() : ShimFixture(false) {
    the_time = kSecond;
    shared.window_ns = 2 * kMillisecond;
    shared.idle_grace_ns = kMillisecond;
    {
      const MutexLock lock(page.holding);
      page.Follow(&shared, gpu);
    }
    gate = keeper.GateOf(context);
  }

  void Order(GateOrder order) { FakeDaemon::Order(shared, order); }
  void Pass(Nanos time) { the_time += time; }
  // Whether the next submission would pass its trampoline without a call.
  bool Passes(const Gate& each) const { return each.accepted == shared.epoch && each.budget > 0; }
  // Does what a trampoline does; false where that calls the keeper.
  bool TrySubmit(Gate& each) {
    if (each.accepted != shared.epoch || each.budget.fetch_sub(1) <= 0) return false;
    Launch();
    return true;
  }
  void Submit(Gate& each) {
    if (TrySubmit(each)) return;
    keeper.Enter(each);
    Launch();
  }
  void Launch() {
    reinterpret_cast<cuda::CUresult (*)(cuda::CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, cuda::CUstream, void**, void**)>(
        tessera_real_table[k_cuLaunchKernel])(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  // A submission that the closed gate let wait; returns when it passed.
  void SubmitWhenOpen(GateOrder order) {
    std::thread submits([this] {
      FakeCuda::SetCurrent(context);
      Submit(*gate);
    });
    Daemon().Await<wire::Wants>(gpu);
    Order(order);
    submits.join();
  }

  // The pacer looks until it has told the daemon so often that the token is back.
  wire::Released Release(std::size_t count = 1) {
    while (Daemon().Count<wire::Released>(gpu) < count) {
      keeper.Look();
      Settle();
    }
    return Daemon().Await<wire::Released>(gpu, count);
  }

  wire::Page shared;
  FollowedPage page;
  HostMemory host;
  GateKeeper& keeper = Kept(new GateKeeper(page, host, Now));
  const cuda::CUcontext context = MakeContext();
  Gate* gate = nullptr;
};

}  // namespace tessera::shim
