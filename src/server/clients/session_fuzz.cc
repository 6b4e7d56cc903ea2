#include "server/clients/session_fuzz.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "base/seqpacket.h"
#include "base/size.h"
#include "server/clients/session.h"
#include "server/testing/fake_driver.h"

namespace tessera::server {
namespace {

constexpr std::uint8_t kRaw = 0x80;       // opcode: the bytes are the packet
constexpr std::uint8_t kHangUp = 0x40;    // opcode: close the connection after it
constexpr std::uint8_t kWithFile = 0x20;  // opcode: a descriptor comes along
constexpr std::size_t kClients = 4;
constexpr int kMostPackets = 64;

// The daemon without its event loop: sessions are read when the script says so.
class Stage {
 public:
  Stage() : loop_(std::move(*EventLoop::Create())) {
    auto list = driver_.List();
    for (std::uint32_t gpu = 0; gpu < list->size(); ++gpu) {
      gpus_.push_back(std::make_unique<GpuServer>(*loop_, gpu, (*list)[gpu], 0, config_, channels_, SwapSetup(),
                                                  GpuServer::Hooks()));
    }
    table_ = std::make_unique<VGpuTable>(*loop_, gpus_, [] {});
    quotas_ = std::make_unique<QuotaKeeper>(config_.quotas, *table_, gpus_);
    guests_ = std::make_unique<GuestServer>(*loop_, *table_, gpus_, channels_, bounds_, [] {});
    kernel_gate_ = std::make_unique<KernelGate>(*loop_, authority_, *table_, gpus_, channels_, *guests_, bounds_,
                                                KernelGate::Setup{.holder_path = "/nonexistent/gates.sock"});
    Make({.name = "a", .gpu = "0", .memory_limit = "1G"});
    Make({.name = "b", .gpu = "1"});
    gpus_[0]->Memory().OnShortage([this](auto, Nanos now) { ReadAll(now); });
    gpus_[1]->Memory().OnShortage([this](auto, Nanos now) { ReadAll(now); });
  }

  void Send(std::size_t client, std::span<const std::byte> packet, bool with_file = false) {
    Connection& connection = At(client);
    SendPacket(connection.client.Get(), packet, with_file ? file_.Get() : -1);
    connection.session->ReadPending();
    Drain(connection);
  }

  void HangUp(std::size_t client) {
    connections_[client].client.Reset();
    if (connections_[client].session) connections_[client].session->ReadPending();
    connections_[client].session.reset();
  }

  bool BooksAreRight() {
    for (std::size_t client = 0; client < kClients; ++client) HangUp(client);
    return NobodyIsIn() && AGoodProgramGetsAll() && NobodyIsIn();
  }

 private:
  struct Connection {
    UniqueFd client;
    std::unique_ptr<Session> session;
  };

  bool NobodyIsIn() const {
    if (exports_.Descriptors() != 0) return false;
    for (const auto& gpu : gpus_) {
      if (gpu->Memory().Ledger().Held() != 0) return false;
      for (const VGpu* vgpu : gpu->VGpus()) {
        if (!vgpu->processes.empty() || vgpu->joined != 0) return false;
        if (gpu->Time().FiguresOf(*vgpu, MonotonicNow()).standing != Standing::kIdle) return false;
      }
    }
    return table_->All().size() == 2;
  }

  bool AGoodProgramGetsAll() {
    wire::Hello hello;
    wire::SetText(hello.vgpus, "a");
    Send(0, wire::BytesOf(wire::Make(hello)));
    Send(0, wire::BytesOf(wire::Make(wire::Attach{.gpu = FakeDriver::UuidOf(0)})));
    Send(0, wire::BytesOf(wire::Make(wire::Reserve{kGiB})));
    Send(0, wire::BytesOf(wire::Make(wire::Wants{})));
    const VGpu& a = *table_->Find("a");
    const bool gets_all = gpus_[0]->Memory().Ledger().Held(a.id) == kGiB &&
                          gpus_[0]->Time().FiguresOf(a, MonotonicNow()).standing == Standing::kRunning;
    HangUp(0);
    return gets_all;
  }

  void Make(const VGpuRequest& request) { (void)table_->Create(request, getuid(), MonotonicNow()); }

  // The connection of that number, made anew if the daemon ended it.
  Connection& At(std::size_t client) {
    Connection& connection = connections_[client];
    if (connection.session && !connection.session->Closed()) return connection;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) abort();
    connection.client.Reset(pair[0]);
    const ucred peer{.pid = getpid(), .uid = getuid(), .gid = getgid()};
    connection.session =
        std::make_unique<Session>(++last_id_, UniqueFd(pair[1]), peer, authority_.Identify(getuid(), {getgid()}),
                                  ClientServices{authority_, *quotas_, *table_, gpus_, config_, channels_, *guests_,
                                                 *kernel_gate_, bounds_, spaces_},
                                  exports_);
    return connection;
  }

  void ReadAll(Nanos now) {
    for (Connection& connection : connections_) {
      if (connection.session) connection.session->ReadPending(kMostPackets, now);
    }
  }

  static void Drain(Connection& connection) {
    std::array<std::byte, wire::kMaxMessageBytes> buffer;
    while (ReceivePacket(connection.client.Get(), buffer) > 0) {
    }
  }

  FakeDriver driver_{2};
  const Config config_;
  const Authority authority_{{.daemon = getuid()}};
  std::unique_ptr<EventLoop> loop_;
  ChannelServer channels_{nullptr, "this is a test", nullptr};
  UserBounds bounds_{UserBounds::Usual()};
  SpaceTable spaces_{*loop_, {.why_none = "none is needed"}, [](const Space&) {}};
  VGpuTable::Gpus gpus_;
  std::unique_ptr<VGpuTable> table_;
  std::unique_ptr<QuotaKeeper> quotas_;
  std::unique_ptr<GuestServer> guests_;
  std::unique_ptr<KernelGate> kernel_gate_;
  Exports exports_{8};
  const UniqueFd file_{memfd_create("chunk", MFD_CLOEXEC)};
  std::array<Connection, kClients> connections_;
  std::uint64_t last_id_ = 0;
};

template <typename Body>
std::vector<std::byte> Framed(std::span<const std::uint8_t> bytes) {
  Body body{};
  if constexpr (!std::is_empty_v<Body>) std::memcpy(&body, bytes.data(), std::min(sizeof body, bytes.size()));
  const auto message = wire::Make(body, bytes.empty() ? 0 : bytes.back() & 1);
  const auto packet = wire::BytesOf(message);
  return {packet.begin(), packet.end()};
}

std::vector<std::byte> HelloTo(std::span<const std::uint8_t> bytes) {
  wire::Hello hello{.observer = bytes.size() > 1 && (bytes[1] & 1)};
  constexpr const char* kNames[] = {"a", "b", "a,b", "b,a,", "a,a", "c", "", ","};
  wire::SetText(hello.vgpus, kNames[bytes.empty() ? 0 : bytes[0] % std::size(kNames)]);
  const auto message = wire::Make(hello);
  const auto packet = wire::BytesOf(message);
  return {packet.begin(), packet.end()};
}

std::vector<std::byte> AttachTo(std::span<const std::uint8_t> bytes) {
  wire::Attach attach{.gpu = FakeDriver::UuidOf(bytes.empty() ? 0 : bytes[0] % 3)};
  if (bytes.size() > 12) std::memcpy(&attach.memory_bytes, bytes.data() + 1, 12);
  if (bytes.size() > 13) attach.away = bytes[13];
  if (bytes.size() > 14) wire::SetText(attach.vgpu, bytes[14] % 2 == 0 ? "a" : "b");
  const auto message = wire::Make(attach);
  const auto packet = wire::BytesOf(message);
  return {packet.begin(), packet.end()};
}

// Memory of one or two chunks under one of a few keys.
std::vector<std::byte> ExportOf(std::span<const std::uint8_t> bytes) {
  wire::Export part{.bytes = 1, .chunk_bytes = 1, .chunks = 1};
  if (bytes.size() > 2) {
    part.key.bytes[0] = bytes[0] % 4;
    part.chunks += bytes[1] % 2;
    part.first = bytes[2] % 2;
  }
  const auto message = wire::Make(part, bytes.empty() ? 0 : bytes.back() & 1);
  const auto packet = wire::BytesOf(message);
  return {packet.begin(), packet.end()};
}

// A right frame of the type that the first byte chooses, around the others.
std::vector<std::byte> Frame(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return Framed<wire::Wants>(bytes);
  const auto rest = bytes.subspan(1);
  switch (bytes[0] % 19) {
    case 0:
      return HelloTo(rest);
    case 1:
      return AttachTo(rest);
    case 2:
      return Framed<wire::Reserve>(rest);
    case 3:
      return Framed<wire::Return>(rest);
    case 4:
      return Framed<wire::Context>(rest);
    case 5:
      return Framed<wire::Idle>(rest);
    case 6:
      return Framed<wire::Released>(rest);
    case 7:
      return Framed<wire::Query>(rest);
    case 8:
      return Framed<wire::View>(rest);
    case 9:
      return Framed<wire::Object>(rest);
    case 10:
      return Framed<wire::Guard>(rest);
    case 11:
      return Framed<wire::Listener>(rest);
    case 12:
      return Framed<wire::Export>(rest);
    case 13:
      return Framed<wire::Unexport>(rest);
    case 14:
      return Framed<wire::Import>(rest);
    case 15:
      return ExportOf(rest);
    case 16:
      return Framed<wire::Unknown>(rest);
    case 17:
      return Framed<wire::Blank>(rest);
    case 18:
      return Framed<wire::Called>(rest);
    default:
      return Framed<wire::Wants>(rest);
  }
}

}  // namespace

bool RunScript(std::span<const std::uint8_t> script) {
  Stage stage;
  while (script.size() >= 3) {
    const std::size_t length = std::min<std::size_t>((script[0] | script[1] << 8) & 0x1fff, script.size() - 3);
    const std::uint8_t opcode = script[2];
    const auto bytes = script.subspan(3, length);
    const std::size_t client = opcode % kClients;
    if (opcode & kRaw) {
      stage.Send(client, std::as_bytes(bytes), opcode & kWithFile);
    } else {
      stage.Send(client, Frame(bytes), opcode & kWithFile);
    }
    if (opcode & kHangUp) stage.HangUp(client);
    script = script.subspan(3 + length);
  }
  return stage.BooksAreRight();
}

}  // namespace tessera::server
