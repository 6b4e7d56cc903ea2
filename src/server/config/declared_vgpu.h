#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

namespace tessera::server {

// A section [vgpu.NAME] of the configuration: a vGPU that the daemon makes by itself. The fields are those of the API's
// request, as text.
struct DeclaredVGpu {
  std::string name;
  std::string where;               // file and line, for messages
  std::string user = "root";       // the owner: a name or a number
  std::optional<uid_t> uid = 0;    // of that user; none: there is no such user
  std::optional<std::string> gpu;  // "auto", index or UUID
  std::optional<std::string> memory_request, memory_limit, memory_max, memory_swap_max;
  std::optional<std::string> compute_request, compute_limit, compute_weight, compute_priority;
  std::optional<std::string> space, sm_limit;
  bool sm_reserved = false, sm_burst = false;
  std::optional<std::string> goal, gang;
  std::map<std::string, std::string> labels;

  // Whether it asks for the same, wherever it stands.
  bool SameAs(const DeclaredVGpu& other) const {
    return user == other.user && gpu == other.gpu && memory_request == other.memory_request &&
           memory_limit == other.memory_limit && memory_max == other.memory_max &&
           memory_swap_max == other.memory_swap_max && compute_request == other.compute_request &&
           compute_limit == other.compute_limit && compute_weight == other.compute_weight &&
           compute_priority == other.compute_priority && goal == other.goal && gang == other.gang &&
           labels == other.labels && space == other.space && sm_limit == other.sm_limit &&
           sm_reserved == other.sm_reserved && sm_burst == other.sm_burst;
  }
};

}  // namespace tessera::server
