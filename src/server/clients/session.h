#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/seqpacket.h"
#include "base/unique_fd.h"
#include "server/channels/channel_server.h"
#include "server/clients/guest_server.h"
#include "server/config/config.h"
#include "server/gpu/gpu_server.h"
#include "server/gpu/vgpu_table.h"
#include "server/memory/exports.h"
#include "wire/protocol.h"

namespace tessera::server {

// One connection to client.sock: a program and what it uses. Reads its packets, checks every field, and acts on the GPU
// servers. Whatever comes in, the worst that happens is that this connection ends.
class Session {
 public:
  // `peer` is who the kernel says that it is. All that is given outlives the session.
  Session(std::uint64_t id, UniqueFd socket, const ucred& peer, VGpuTable& table, VGpuTable::Gpus& gpus,
          const Config& config, ChannelServer& channels, GuestServer& guests, Exports& exports);
  ~Session();

  // Acts on the packets that wait on the socket, `most` at once so that everybody gets a turn. Never blocks. Not
  // re-entrant: a call while one is under way does nothing.
  void ReadPending(int most = 64);

  // Gives back all that the program had, at once. The socket stays open until the session is destroyed.
  void Close();
  bool Closed() const { return closed_; }

  int Socket() const { return socket_.Get(); }
  const ucred& Peer() const { return peer_; }
  bool Greeted() const { return greeted_; }

  // Whether it uses the given vGPU.
  bool Uses(VgpuId vgpu) const;

 private:
  // Each returns why the packet ends the connection, null if it does not.
  using Complaint = const char*;
  Complaint Act(std::span<const std::byte> packet);
  bool TakesPrompt();
  Complaint On(const wire::Hello& hello);
  Complaint On(const wire::Attach& attach);
  Complaint On(const wire::Query& query);
  Complaint On(const wire::Object& object);
  Complaint On(const wire::Guard& guard);
  Complaint OnListener();
  Complaint OnProcess(const wire::Header& header, std::span<const std::byte> packet);
  Complaint On(Process& process, const wire::Reserve& reserve);
  Complaint On(Process& process, const wire::Return& returned);
  Complaint On(Process& process, const wire::Context& context);
  Complaint On(Process& process, const wire::Room& room);
  Complaint On(Process& process, const wire::Line& line);
  Complaint On(Process& process, const wire::Export& part);
  Complaint On(Process& process, const wire::Unexport& unexport);
  Complaint On(Process& process, const wire::Import& import);
  Complaint On(Process& process, const wire::Wants& wants);
  Complaint On(Process& process, const wire::Idle& idle);
  Complaint On(Process& process, const wire::Released& released);

  Result<std::vector<VGpu*>> Choose(std::string_view names) const;
  Result<Process*> Attach(const wire::Attach& attach);
  GpuServer* FindGpu(const wire::Uuid& uuid) const;
  GpuServer& Gpu(const Process& process) const { return *gpus_[process.vgpu->gpu]; }
  Complaint Refuse(const Error& error);
  template <typename Body>
  Complaint Send(const Body& body, std::uint32_t gpu = 0, std::span<const int> fds = {});

  const std::uint64_t id_;
  const UniqueFd socket_;
  const ucred peer_;
  VGpuTable& table_;
  VGpuTable::Gpus& gpus_;
  const Config& config_;
  ChannelServer& channels_;
  GuestServer& guests_;
  Exports& exports_;
  std::array<UniqueFd, kMostDescriptors> received_;  // came along with the packet that is acted on,
  std::size_t received_count_ = 0;                   // so many
  bool guards_ = false;                              // it said Guard: a listener is to come
  bool listened_ = false;                            // and has come
  bool reading_ = false;
  bool closed_ = false;
  bool greeted_ = false;
  bool observer_ = false;
  std::string program_;
  std::vector<VgpuId> joined_;                       // by GPU; 0: none there
  std::vector<std::unique_ptr<Process>> processes_;  // by GPU; null until attached
};

}  // namespace tessera::server
