#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/unique_fd.h"
#include "server/access/authority.h"
#include "server/channels/channel_server.h"
#include "server/clients/guest_server.h"
#include "server/clients/kernel_gate.h"
#include "server/clients/process_messages.h"
#include "server/clients/replies.h"
#include "server/clients/user_bounds.h"
#include "server/config/config.h"
#include "server/gpu/gpu_server.h"
#include "server/gpu/quota_keeper.h"
#include "server/gpu/vgpu_table.h"
#include "server/memory/exports.h"
#include "server/spaces/space_table.h"
#include "wire/protocol.h"

namespace tessera::server {

// The parts of the daemon that a connection acts on.
struct ClientServices {
  const Authority& authority;
  const QuotaKeeper& quotas;
  VGpuTable& table;
  VGpuTable::Gpus& gpus;
  const Config& config;
  ChannelServer& channels;
  GuestServer& guests;
  KernelGate& kernel_gate;
  UserBounds& bounds;
  const SpaceTable& spaces;
  std::function<void(pid_t, Nanos)> called = {};  // a program that is away has called its driver
};

// One connection to client.sock: a program, its greeting, and its processes on the GPUs. Reads its packets and checks
// every field. The worst that a packet can do is to end this connection.
class Session {
 public:
  // `peer` and `caller` are who the kernel says that it is. Everything that is given outlives the session.
  Session(std::uint64_t id, UniqueFd socket, const ucred& peer, Caller caller, const ClientServices& services,
          Exports& exports);
  ~Session();

  // Acts on the packets that wait on the socket, `most` at once so that everybody gets a turn. Never blocks. Not
  // re-entrant: a call while one is under way does nothing. Without `now` each packet has the time at which it is read;
  // a caller that is in the middle of an event gives the time of that event.
  void ReadPending(int most = 64, std::optional<Nanos> now = {});

  // Gives back all that the program had, at once. The socket stays open until the session is destroyed.
  void Close(Nanos now);
  bool Closed() const { return closed_; }

  int Socket() const { return socket_.Get(); }
  const ucred& Peer() const { return peer_; }
  bool Greeted() const { return greeted_; }

  // Whether it uses the given vGPU.
  bool Uses(VgpuId vgpu) const;

 private:
  Complaint Act(std::span<const std::byte> packet, Nanos now);
  bool TakesPrompt();
  void DropReceived();
  Complaint On(const wire::Hello& hello);
  Complaint On(const wire::Guard& guard);
  Complaint OnListener();
  Complaint On(const wire::Object& object, Nanos now);
  Complaint On(const wire::Unknown& unknown);
  Complaint On(const wire::Attach& attach, Nanos now);
  Complaint On(const wire::Query& query, Nanos now);
  Complaint Welcome() const;
  Result<Process*> Attach(const wire::Attach& attach, Nanos now);
  GpuServer* FindGpu(const wire::Uuid& uuid) const;
  VGpu* JoinedAs(std::string_view name) const;
  VGpu* JoinedOn(const GpuServer* gpu) const;
  Result<void> CheckSpace(const std::vector<VGpu*>& chosen) const;

  const std::uint64_t id_;
  const UniqueFd socket_;
  const ucred peer_;
  const Caller caller_;
  const ClientServices services_;
  Exports& exports_;
  std::array<UniqueFd, kMostDescriptors> received_;  // came along with the packet that is acted on,
  std::size_t received_count_ = 0;                   // so many
  bool guards_ = false;                              // it said Guard: a listener is to come
  bool listened_ = false;                            // and has come
  int unknown_ = 0;                                  // functions that it asked the driver for and that are not known
  bool reading_ = false;
  bool closed_ = false;
  bool greeted_ = false;
  bool observer_ = false;
  bool told_ = false;  // of objects
  std::string program_;
  ProcessMessages::Joined joined_;
  std::vector<UserBounds::Claim> attachments_;
  ProcessMessages::Processes processes_;
  const Replies replies_{socket_.Get()};
  ProcessMessages messages_;
};

}  // namespace tessera::server
