// The bodies of requests to the API. All functions: EINVAL for what is no such JSON object, and for fields that are
// unknown, missing or of a wrong type; the first one is named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/model/vgpu_request.h"

namespace tessera::face {

// Of a POST or PATCH for a vGPU.
Result<server::VGpuRequest> ParseVGpuRequest(const std::string& body);

// A request for a space that lasts.
struct SpaceRequest {
  std::string name;
  std::optional<std::string> gpu;  // "auto", index or UUID
};
Result<SpaceRequest> ParseSpaceRequest(const std::string& body);

// The field to_bytes of an eviction's body: how many bytes may stay on the GPU; 0 if it is missing.
Result<std::uint64_t> ParseEviction(const std::string& body);
// {"gpus": ["1"], "dry_run": true}; dry_run may be missing.
struct MigrationWish {
  std::vector<std::string> gpus;  // at least one
  bool dry_run = false;
};
// {"to": "memory" or "file"}, or no body for memory. Whether it is a file.
Result<bool> ParseSuspension(const std::string& body);
Result<MigrationWish> ParseMigration(const std::string& body);

// {"dry_run": true}, which may be missing.
Result<bool> ParseDryRun(const std::string& body);
// {"memory_request": "20G", "compute_request": 30, "dry_run": true}; at least one of the requests.
struct RoomWish {
  server::VGpuRequest request;
  bool dry_run = false;
};
Result<RoomWish> ParseRoomWish(const std::string& body);

// The vGPU that the body of an adoption names.
Result<std::string> ParseAdoption(const std::string& body);

}  // namespace tessera::face
