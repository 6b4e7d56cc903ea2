#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sched/cluster/demand.h"
#include "sched/cluster/node_room.h"

namespace tessera::plan {

// A fleet of nodes, empty.
struct FleetNodes {
  std::vector<sched::NodeRoom> rooms;
  std::vector<std::string> models;  // names of the types of GPU, by NodeRoom::model

  std::int64_t gpus() const;
};

// Reads the lists of nodes and of pods of Alibaba's trace "openb" (gpu-v2023), as the simulator of FGD has them, and
// others of this form. They are CSV files with these columns, in any order:
//
//   nodes: sn, cpu_milli, memory_mib, gpu, model
//   pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli; gpu_spec (types of GPU with | between them) may be missing
//
// The trace's other columns of pods (qos, pod_phase, creation_time, deletion_time, scheduled_time) are passed over.
//
// Errors name the file and the line. EINVAL: a column is missing, unknown or named twice, a name is empty or used
// twice, a number is no whole one, a pod asks for no part of a GPU of which it asks for one, or for parts of several,
// or for types that no node has. ERANGE: a number is negative or too large.
Result<FleetNodes> ReadFleetNodes(const std::string& path);
Result<std::vector<sched::Demand>> ReadFleetPods(const std::string& path, const FleetNodes& nodes);

}  // namespace tessera::plan
