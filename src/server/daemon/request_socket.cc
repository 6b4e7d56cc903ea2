#include "server/daemon/request_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <ranges>
#include <utility>

#include "base/duration.h"
#include "server/access/vgpu_names.h"
#include "server/loop/listeners.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr const char* kFile = "requests.sock";

bool MayTell(uid_t user, const VGpu& vgpu) {
  return user == 0 || user == vgpu.spec.uid ||
         std::ranges::any_of(vgpu.processes, [&](const Process* process) { return process->who.uid == user; });
}

std::optional<uid_t> SenderOf(msghdr& message) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS) continue;
    ucred who;
    std::memcpy(&who, CMSG_DATA(header), sizeof who);
    return who.uid;
  }
  return {};
}

}  // namespace

Result<ToldRequest> ParseToldRequest(std::string_view line) {
  constexpr const char* kUse = "write the vGPU's name and a time: web 12.5ms";
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return Fail(EINVAL, "a line without a name or a time", kUse);
  const auto latency = ParseDuration(line.substr(space + 1));
  if (!latency) return Fail(latency.error().code, "a time that is none, or too long", kUse);
  const VGpuNames said = SplitNames(line.substr(0, space));
  ToldRequest told{.vgpus = {}, .key = std::string(said.key), .latency = *latency};
  for (const std::string_view name : said.names) {
    if (std::ranges::find(told.vgpus, name) != told.vgpus.end() || told.vgpus.size() == kMostNames)
      return Fail(EINVAL, "a name twice, or too many names", kUse);
    told.vgpus.emplace_back(name);
  }
  return told;
}

Result<std::unique_ptr<RequestSocket>> RequestSocket::Start(EventLoop& loop, const std::string& run_dir,
                                                            VGpuTable& table) {
  auto socket = BindDatagrams(run_dir + "/" + kFile, 0666);
  if (!socket) return std::unexpected(socket.error());
  std::unique_ptr<RequestSocket> requests(new RequestSocket(run_dir, std::move(*socket), table));
  constexpr int kOn = 1;
  if (setsockopt(requests->socket_.Get(), SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0)
    return FailErrno("cannot learn who writes to requests.sock");
  auto watch = loop.WatchReadable(requests->socket_.Get(), [self = requests.get()] { self->Read(); });
  if (!watch) return std::unexpected(watch.error());
  requests->watch_ = std::move(*watch);
  if (auto linked = LinkForContainers(run_dir, kFile); !linked)
    log::Warn("containers cannot tell of their requests: {}", linked.error().Text());
  return requests;
}

RequestSocket::RequestSocket(std::string run_dir, UniqueFd socket, VGpuTable& table)
    : run_dir_(std::move(run_dir)), socket_(std::move(socket)), table_(table) {}

RequestSocket::~RequestSocket() {
  unlink((run_dir_ + "/" + kFile).c_str());
  unlink((run_dir_ + "/programs/" + kFile).c_str());
}

void RequestSocket::Read() {
  Latencies latencies;
  for (int i = 0; i < kMostAtOnce && ReadOne(latencies); ++i) continue;
  const Nanos now = MonotonicNow();
  for (const auto& [vgpu, its] : latencies) {
    TimeControl& time = table_.Gpu(*vgpu).Time();
    time.Goals().NoteRequests(*vgpu, its, now);
    time.Changed(*vgpu, now);
  }
}

// False: there is none.
bool RequestSocket::ReadOne(Latencies& latencies) {
  std::array<char, kMostBytes> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = recvmsg(socket_.Get(), &message, MSG_CMSG_CLOEXEC);
  if (length < 0) return errno == EINTR;
  const auto sender = SenderOf(message);
  if (!sender) return true;
  const auto complain = [&](const Error& error) {
    log::WarnOf(*sender, "user {} told of a request that does not count: {}", *sender, error.Text());
    return true;
  };
  if (message.msg_flags & MSG_TRUNC)
    return complain(
        {EMSGSIZE, fmt::format("a datagram of more than {} bytes", kMostBytes), "send fewer lines at once"});
  // Of the lines that do not count, the last is told of.
  Result<void> all;
  const std::string_view text(bytes.data(), static_cast<std::size_t>(length));
  for (const auto each : std::views::split(text, '\n')) {
    const std::string_view line(each.begin(), each.end());
    if (line.empty()) continue;
    if (auto taken = Take(line, *sender, latencies); !taken) all = std::move(taken);
  }
  return all || complain(all.error());
}

Result<void> RequestSocket::Take(std::string_view line, uid_t sender, Latencies& latencies) {
  const auto told = ParseToldRequest(line);
  if (!told) return std::unexpected(told.error());
  for (const std::string& name : told->vgpus) {
    VGpu* const vgpu = table_.Find(name);
    // Whoever may not tell of it does not learn that it is there.
    if (!vgpu || !MayTell(sender, *vgpu) || !OpensWith(vgpu->spec.key, told->key))
      return Fail(ENOENT, "no vGPU of that name is the sender's", "use the value of TESSERA_VGPU");
    latencies[vgpu].push_back(told->latency);
  }
  return {};
}

}  // namespace tessera::server
