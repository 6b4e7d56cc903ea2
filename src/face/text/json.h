#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "server/daemon/report.h"
#include "server/record/events.h"

namespace tessera::face {

// The daemon's reports as the API has them: snake_case, bytes and microseconds as integers, percentages as numbers.
nlohmann::json ToJson(const server::GpuReport& gpu);
nlohmann::json ToJson(const server::VGpuReport& vgpu);
nlohmann::json ToJson(const server::ProcessReport& process);
nlohmann::json ToJson(const server::SpaceReport& space);
nlohmann::json ToJson(const server::EvictionReport& eviction);
nlohmann::json ToJson(const server::SuspensionReport& suspension);
nlohmann::json ToJson(const server::MigrationReport& migration);
nlohmann::json ToJson(const server::RehomingReport& rehoming);
nlohmann::json ToJson(const server::CheckReport& check);
nlohmann::json ToJson(const server::Event& event);

// RFC 7807: {"type","title","status","detail","hint","code"}.
nlohmann::json ToProblem(const Error& error, int status);

// The HTTP status for an errno value.
int StatusFor(int code);

// "ENOSPC" for the errno values that the daemon uses, "EIO" for others.
const char* NameOfErrno(int code);

}  // namespace tessera::face
