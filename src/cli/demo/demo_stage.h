#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/launch/environment.h"
#include "client/api_client.h"

namespace tessera::cli {

// Where the demo plays: a GPU, and a daemon of its own in a temporary folder, so that it neither disturbs nor needs any
// other. All of it is gone afterwards, however the demo ends.
class DemoStage {
 public:
  // Takes a real GPU if there is one and `common` does not ask for the soft one.
  static Result<DemoStage> Set(const Common& common);
  DemoStage(DemoStage&& other) noexcept;
  DemoStage& operator=(DemoStage&&) = delete;
  ~DemoStage();

  client::ApiClient client() const { return client::ApiClient(common_.run_dir); }
  // For a program in the vGPU `name`.
  ProgramPlace PlaceIn(const std::string& name) const;
  // For a program that has nothing to do with Tessera: the GPU as it is.
  Variables WithoutTessera() const;

  bool soft() const { return common_.soft; }
  const std::string& device_name() const { return device_name_; }
  std::uint64_t memory_bytes() const { return memory_bytes_; }  // of the GPU

 private:
  DemoStage() = default;
  Result<void> StartDaemon();

  Common common_;
  int daemon_pid_ = 0;
  std::string device_name_;
  std::string device_uuid_;
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace tessera::cli
