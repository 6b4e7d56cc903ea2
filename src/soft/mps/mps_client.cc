#include "soft/mps/mps_client.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include "base/seqpacket.h"
#include "soft/mps/mps_directory.h"
#include "soft/shared/mps_servers.h"

namespace tessera::soft {
namespace {

// Not by strtod, which follows the program's locale.
std::optional<double> OwnPercentage() {
  const char* text = std::getenv(kMpsPercentageVariable);
  if (text == nullptr || *text == '\0') return {};
  double percentage = 0;
  std::from_chars(text, text + std::strlen(text), percentage);
  return percentage;
}

}  // namespace

cuda::CUresult JoinMps(SharedState& state) {
  const char* directory = std::getenv(kMpsPipeVariable);
  if (directory == nullptr || *directory == '\0') return cuda::CUDA_SUCCESS;
  const UniqueFd daemon = ConnectSeqpacket(MpsSocketIn(directory).c_str());
  if (!daemon) return cuda::CUDA_SUCCESS;
  char answer[128] = {};
  if (!SendPacket(daemon.Get(), std::as_bytes(std::span(kConnectRequest, std::strlen(kConnectRequest)))) ||
      ReceivePacket(daemon.Get(), std::as_writable_bytes(std::span(answer, sizeof answer - 1))) <= 0) {
    return cuda::CUDA_ERROR_MPS_CONNECTION_FAILED;
  }
  int refused = 0;
  if (std::sscanf(answer, "refused %d", &refused) == 1 && refused > 0) return static_cast<cuda::CUresult>(refused);
  ProcessId server;
  unsigned long long start_time = 0;
  if (std::sscanf(answer, "server %d %u %llu", &server.pid, &server.pid_namespace, &start_time) != 3) {
    return cuda::CUDA_ERROR_MPS_CONNECTION_FAILED;
  }
  server.start_time = start_time;
  return JoinMpsServer(state, server, OwnPercentage());
}

}  // namespace tessera::soft
