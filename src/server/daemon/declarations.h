#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/config/declared_vgpu.h"
#include "server/gpu/vgpu_table.h"

namespace tessera::server {

// Keeps the vGPUs that the configuration declares. Runs on the event loop's thread.
class Declarations {
 public:
  // The table outlives the object.
  explicit Declarations(VGpuTable& table) : table_(table) {}

  // Makes what is declared and not there, and sets what is there if its section is new or has changed: what was set by
  // hand meanwhile stays otherwise. A vGPU whose section is gone stays as an ordinary one. The errors are of sections
  // that cannot be carried out, with file and line; the others are.
  std::vector<Error> Apply(const std::vector<DeclaredVGpu>& declared, Nanos now);

 private:
  Result<void> Make(const DeclaredVGpu& declared, Nanos now);

  VGpuTable& table_;
  std::map<std::string, DeclaredVGpu> carried_out_;
};

}  // namespace tessera::server
