#pragma once

#include <functional>
#include <utility>

#include "server/checkpoint/suspensions.h"
#include "server/draining/drains.h"
#include "server/draining/load_balancer.h"
#include "server/draining/move_queue.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"
#include "server/migration/migrations.h"

namespace tessera::server {

// All that moves vGPUs between GPUs. Runs on the loop's thread.
struct VGpuMoves {
  // As Migrations, and Drains' `on_change`. All outlive the object.
  VGpuMoves(EventLoop& loop, VGpuTable& table, const VGpuTable::Gpus& gpus, Suspensions& suspensions,
            Migration::Means means, std::function<void()> on_change)
      : migrations(loop, table, gpus, suspensions, std::move(means)),
        queue(loop, table, migrations),
        drains(table, gpus, suspensions, queue, std::move(on_change)),
        balancer(loop, table, gpus, suspensions, queue) {}

  Migrations migrations;
  MoveQueue queue;
  Drains drains;
  LoadBalancer balancer;
};

}  // namespace tessera::server
