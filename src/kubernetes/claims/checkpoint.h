#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace tessera::kubernetes {

// A device of a claim, and the vGPU that it became.
struct PreparedDevice {
  std::string request, pool, device;
  std::string share_id;  // empty: none
  std::string vgpu;
  bool operator==(const PreparedDevice&) const = default;
};

struct PreparedClaim {
  std::string namespace_name, name;
  bool complete = false;     // vGPUs and CDI file are there; else some may be
  bool kernel_gate = false;  // its containers must be behind the kernel gate
  std::string key;           // of its vGPUs; empty: made by a driver that knew no keys
  std::string change;        // parameters that a pod asked for later; empty: none
  std::vector<PreparedDevice> devices;
  bool operator==(const PreparedClaim&) const = default;
};

// Record on disk of the claims that the driver has prepared or begun to prepare, by their UIDs: a claim may be gone
// from the API server when the kubelet has it unprepared, and a driver that was killed must find its vGPUs.
class Checkpoint {
 public:
  using Claims = std::map<std::string, PreparedClaim>;

  // Reads the file; a missing one is empty. EBADMSG if it is not what Write writes, or not whole.
  static Result<Checkpoint> Read(std::string path);

  const Claims& claims() const { return claims_; }
  const PreparedClaim* Find(const std::string& uid) const;

  // Each is on disk when it returns; a failure changes nothing.
  Result<void> Put(const std::string& uid, PreparedClaim claim);
  Result<void> Remove(const std::string& uid);

 private:
  explicit Checkpoint(std::string path) : path_(std::move(path)) {}
  Result<void> Replace(Claims claims);

  std::string path_;
  Claims claims_;
};

// As text, and back; EBADMSG as above. Public for tests.
std::string FormatCheckpoint(const Checkpoint::Claims& claims);
Result<Checkpoint::Claims> ParseCheckpoint(const std::string& text);

}  // namespace tessera::kubernetes
