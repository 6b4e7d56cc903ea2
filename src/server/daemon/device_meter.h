#pragma once

#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/devices/gpu_driver.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Asks the devices what their processes use, for GpuServer::Measurement. By itself it does so only while programs are
// active: a second after contexts come and go, then less and less often, because asking the driver seems to cost
// running programs about 1 % of such a second (docs/hardware-log.md).
class DeviceMeter {
 public:
  using Answers = std::vector<Result<DeviceUse>>;  // by GPU
  static constexpr Nanos kOften = kSecond;
  static constexpr Nanos kSeldom = 60 * kSecond;

  // Everything that is given outlives the meter.
  DeviceMeter(EventLoop& loop, GpuDriver& driver, const VGpuTable::Gpus& gpus);

  // Somebody wants to know: Begin on the loop's thread (false: the devices are being asked already), Ask on another
  // one, where it may take milliseconds, and End on the loop's.
  bool Begin();
  Answers Ask() const;
  void End(const Answers& answers, Nanos now);

  // Something happened that makes a measurement worth while; and something that only the devices can tell more of.
  void Soon();
  void ContextsChanged();

 private:
  void Measure();

  GpuDriver& driver_;
  const VGpuTable::Gpus& gpus_;
  EventLoop::Timer timer_;
  Nanos due_at_ = kNever;  // the timer's time
  bool again_ = false;     // contexts changed shortly before that: once more a second later
  Nanos after_ = kOften;
  bool running_ = false;
  Answers answers_;  // belongs to asking_'s thread while there is one
  Background asking_;
};

}  // namespace tessera::server
