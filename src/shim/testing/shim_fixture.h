// A managed process for tests of the shim: its session with a fake daemon, and a fake driver.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "shim/device/attachment.h"
#include "shim/session/session.h"
#include "shim/testing/fake_cuda.h"
#include "shim/testing/fake_daemon.h"

namespace tessera::shim {

inline constexpr std::uint64_t kMiB = 1u << 20;
inline constexpr std::uint64_t kGiB = 1u << 30;

// Session and attachments live as long as the process, so all tests share the driver and the session, and each has a
// device of its own, which the daemon knows as `gpu`. What a daemon is to answer is set before the device is used.
class ShimFixture : public testing::Test {
 protected:
  // `attaches`: the test uses Attached(). Of these 64 can be in one program, as many as a process can have devices.
  explicit ShimFixture(bool attaches = true);
  ~ShimFixture() override;

  static FakeCuda& Cuda();
  static FakeDaemon& Daemon();
  // Ends the daemon, or starts another one, which knows of nothing.
  static void EndDaemon();
  static FakeDaemon& StartDaemon();
  // The daemon has read all that this process told it so far, if no other thread speaks.
  static void Settle();

  // Of this test's device.
  Attachment& Attached();
  // A context of the device, current from now on.
  cuda::CUcontext MakeContext();
  // With memory that is swapped, in pages whose gate stands like this.
  void Swap(wire::GateOrder order = wire::GateOrder::kOpen);
  wire::Page& Page() { return Daemon().Page(gpu); }

  // An object that is never destroyed, like those of the shim whose gates threads may still point to.
  template <typename Object>
  static Object& Kept(Object* made) {
    Keep(made);
    return *made;
  }

  const cuda::CUdevice device;
  const std::uint32_t gpu;

 private:
  static std::string Directory();
  static void Keep(void* object);
};

}  // namespace tessera::shim
