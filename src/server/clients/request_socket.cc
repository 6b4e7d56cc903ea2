#include "server/clients/request_socket.h"

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
#include "server/loop/listeners.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr std::size_t kMostComplaints = 64;
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
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return Fail(EINVAL, "no time", "write the vGPU's name and a time: web 12.5ms");
  const auto latency = ParseDuration(line.substr(space + 1));
  if (!latency) return std::unexpected(latency.error());
  ToldRequest told{.vgpus = {}, .latency = *latency};
  for (const auto name : std::views::split(line.substr(0, space), ','))
    told.vgpus.emplace_back(name.begin(), name.end());
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
  const Nanos now = MonotonicNow();
  for (int i = 0; i < kMostAtOnce && ReadOne(now); ++i) continue;
}

// False: there is none.
bool RequestSocket::ReadOne(Nanos now) {
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
  if (message.msg_flags & MSG_TRUNC) {
    Complain(*sender, {EMSGSIZE, "a datagram of more than 4096 bytes", "send fewer lines at a time"});
    return true;
  }
  for (const auto each : std::views::split(std::string_view(bytes.data(), static_cast<std::size_t>(length)), '\n')) {
    const std::string_view line(each.begin(), each.end());
    if (line.empty()) continue;
    if (auto taken = Take(line, *sender, now); !taken) Complain(*sender, taken.error());
  }
  return true;
}

Result<void> RequestSocket::Take(std::string_view line, uid_t sender, Nanos now) {
  const auto told = ParseToldRequest(line);
  if (!told) return std::unexpected(told.error());
  Result<void> result = Fail(EINVAL, "no vGPU is named");
  for (const std::string& name : told->vgpus) {
    VGpu* const vgpu = table_.Find(name);
    // Whoever may not tell of it does not learn that it is there.
    if (!vgpu || !MayTell(sender, *vgpu))
      return Fail(ENOENT, "no vGPU of that name is the sender's", "use the value of TESSERA_VGPU");
    table_.Gpu(*vgpu).Time().NoteRequest(*vgpu, told->latency, now);
    result = {};
  }
  return result;
}

void RequestSocket::Complain(uid_t sender, const Error& error) {
  if (complained_.size() >= kMostComplaints || !complained_.insert(sender).second) return;
  log::Warn("user {} told of a request that does not count: {}; the next ones are not logged", sender, error.Text());
}

}  // namespace tessera::server
