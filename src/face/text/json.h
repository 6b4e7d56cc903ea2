#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "server/daemon/report.h"
#include "server/model/vgpu_request.h"
#include "server/record/events.h"

namespace tessera::face {

// The daemon's reports as the API has them: snake_case, bytes and microseconds as integers, percentages as numbers.
nlohmann::json ToJson(const server::GpuReport& gpu);
nlohmann::json ToJson(const server::VGpuReport& vgpu);
nlohmann::json ToJson(const server::ProcessReport& process);
nlohmann::json ToJson(const server::SpaceReport& space);
nlohmann::json ToJson(const server::EvictionReport& eviction);
nlohmann::json ToJson(const server::CheckReport& check);
nlohmann::json ToJson(const server::Event& event);

// RFC 7807: {"type","title","status","detail","hint","code"}.
nlohmann::json ToProblem(const Error& error, int status);

// The HTTP status for an errno value.
int StatusFor(int code);

// "ENOSPC" for the errno values that the daemon uses, "EIO" for others.
const char* NameOfErrno(int code);

// Reads the body of a POST or PATCH. EINVAL names the first field that is unknown or of a wrong type.
Result<server::VGpuRequest> ParseVGpuRequest(const std::string& body);

// A request for a space that lasts.
struct SpaceRequest {
  std::string name;
  std::optional<std::string> gpu;  // "auto", index or UUID
};
Result<SpaceRequest> ParseSpaceRequest(const std::string& body);

// The field to_bytes of an eviction's body: how many bytes may stay on the GPU; 0 if it is missing. EINVAL for anything
// else.
Result<std::uint64_t> ParseEviction(const std::string& body);

// The vGPU that the body of an adoption names. EINVAL for anything else.
Result<std::string> ParseAdoption(const std::string& body);

}  // namespace tessera::face
