#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// A program's word of how long one of its requests took.
struct ToldRequest {
  std::vector<std::string> vgpus;
  std::string key;  // of all of them; empty: none
  Nanos latency = 0;
};
// "VGPU[,VGPU…][:KEY] TIME", as TESSERA_VGPU has the names, each once and kMostNames at most, and ParseDuration reads
// the time. EINVAL: it is something else; ERANGE: the time is above a year. Errors do not quote the line.
inline constexpr std::size_t kMostNames = 16;
Result<ToldRequest> ParseToldRequest(std::string_view line);

// Socket by which programs tell how long their requests took (requests.sock): datagrams of lines. On the loop's thread.
//
// Everybody may write. A line counts if its sender is root, the vGPU's owner, or a user with a program in it, and has
// its key; nobody is answered. What does not count is logged as far as the user's budget goes (event_budget.h).
class RequestSocket {
 public:
  // Binds `<run_dir>/requests.sock`, and gives it to containers as client.sock. Everything that is given outlives the
  // object, which removes the socket.
  static Result<std::unique_ptr<RequestSocket>> Start(EventLoop& loop, const std::string& run_dir, VGpuTable& table);
  ~RequestSocket();

  static constexpr std::size_t kMostBytes = 1024;  // of a datagram
  static constexpr int kMostAtOnce = 16;           // datagrams, before others of the loop come

 private:
  using Latencies = std::map<VGpu*, std::vector<Nanos>>;

  RequestSocket(std::string run_dir, UniqueFd socket, VGpuTable& table);
  void Read();
  bool ReadOne(Latencies& latencies);
  Result<void> Take(std::string_view line, uid_t sender, Latencies& latencies);

  const std::string run_dir_;
  const UniqueFd socket_;
  VGpuTable& table_;
  EventLoop::Watch watch_;
};

}  // namespace tessera::server
