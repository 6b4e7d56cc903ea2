#include "server/testing/fake_client.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "base/seqpacket.h"

namespace tessera::server {

FakeClient::FakeClient(const std::string& run_dir) : socket_(ConnectSeqpacket((run_dir + "/client.sock").c_str())) {
  EXPECT_TRUE(socket_) << strerror(errno);
}

FakeClient::FakeClient(FakeClient&& other) noexcept
    : socket_(std::move(other.socket_)), page_(std::exchange(other.page_, nullptr)) {}

FakeClient::~FakeClient() {
  if (page_) munmap(page_, wire::kPageBytes);
}

bool FakeClient::SendBytes(std::span<const std::byte> bytes) { return SendPacket(socket_.Get(), bytes); }

template <typename Body>
Body FakeClient::Read(UniqueFd* fd) {
  std::size_t received;
  return Read<Body>(fd ? std::span(fd, 1) : std::span<UniqueFd>(), received);
}

template <typename Body>
Body FakeClient::Read(std::span<UniqueFd> fds, std::size_t& received) {
  std::array<std::byte, wire::kMaxMessageBytes> buffer;
  const ssize_t length = ReceivePacket(socket_.Get(), buffer, fds, received);
  if (length <= 0) {
    ADD_FAILURE() << "the daemon closed the connection";
    return {};
  }
  const auto packet = std::span(buffer).first(static_cast<std::size_t>(length));
  wire::Header header;
  EXPECT_EQ(wire::ReadHeader(packet, header), wire::Fault::kNone);
  if (const auto refused = wire::ReadBody<wire::Refused>(header, packet);
      refused && Body::kType != wire::Type::kRefused) {
    ADD_FAILURE() << "refused: " << wire::TextOf(refused->text);
  }
  const auto body = wire::ReadBody<Body>(header, packet);
  EXPECT_TRUE(body) << "a message of type " << static_cast<int>(header.type);
  return body.value_or(Body{});
}

wire::Welcome FakeClient::Hello(const std::string& vgpus, bool observer) {
  wire::Hello hello{.pid = getpid(), .observer = observer};
  wire::SetText(hello.vgpus, vgpus);
  wire::SetText(hello.program, "fake");
  Send(hello);
  return Read<wire::Welcome>();
}

wire::Refused FakeClient::HelloRefused(const std::string& vgpus) {
  wire::Hello hello;
  wire::SetText(hello.vgpus, vgpus);
  Send(hello);
  return Read<wire::Refused>();
}

wire::Attached FakeClient::Attach(const wire::Uuid& gpu, std::uint64_t holds_bytes, std::uint32_t holds_contexts,
                                  bool works) {
  return Attach({.gpu = gpu, .memory_bytes = holds_bytes, .contexts = holds_contexts, .works = works});
}

wire::Attached FakeClient::Attach(const wire::Attach& request) {
  Send(request);
  UniqueFd fd;
  const auto attached = Read<wire::Attached>(&fd);
  if (page_) munmap(page_, wire::kPageBytes);
  void* memory = mmap(nullptr, wire::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.Get(), 0);
  EXPECT_NE(memory, MAP_FAILED);
  page_ = static_cast<wire::Page*>(memory);
  return attached;
}

wire::Refused FakeClient::AttachRefused(const wire::Uuid& gpu) {
  Send(wire::Attach{.gpu = gpu});
  return Read<wire::Refused>();
}

wire::Reserved FakeClient::Reserve(std::uint64_t bytes, std::uint32_t gpu) {
  Send(wire::Reserve{bytes}, gpu);
  return Read<wire::Reserved>();
}

wire::Reserved FakeClient::MakeContext(std::uint32_t gpu) {
  Send(wire::Context{.delta = 1}, gpu);
  return Read<wire::Reserved>();
}

wire::RoomGranted FakeClient::AskForRoom(std::uint64_t bytes, std::uint32_t gpu) {
  Send(wire::Room{.bytes = bytes}, gpu);
  return Read<wire::RoomGranted>();
}

void FakeClient::Export(const wire::Export& part, std::span<const int> fds, std::uint32_t gpu) {
  SendPacket(socket_.Get(), wire::BytesOf(wire::Make(part, gpu)), fds);
  Read<wire::Exported>();
}

wire::Refused FakeClient::ExportRefused(const wire::Export& part, std::span<const int> fds, std::uint32_t gpu) {
  SendPacket(socket_.Get(), wire::BytesOf(wire::Make(part, gpu)), fds);
  return Read<wire::Refused>();
}

void FakeClient::Unexport(const wire::ExportKey& key, std::uint32_t gpu) {
  Send(wire::Unexport{.key = key}, gpu);
  Read<wire::Exported>();
}

wire::Imported FakeClient::Import(const wire::Import& import, std::vector<UniqueFd>* fds, std::uint32_t gpu) {
  Send(import, gpu);
  std::array<UniqueFd, kMostDescriptors> came;
  std::size_t count = 0;
  const auto imported = Read<wire::Imported>(came, count);
  for (UniqueFd& fd : std::span(came).first(count)) fds->push_back(std::move(fd));
  return imported;
}

wire::Refused FakeClient::ImportRefused(const wire::Import& import, std::uint32_t gpu) {
  Send(import, gpu);
  return Read<wire::Refused>();
}

wire::View FakeClient::Query(const wire::Uuid& gpu) {
  Send(wire::Query{gpu});
  return Read<wire::View>();
}

wire::Refused FakeClient::ReadRefused() { return Read<wire::Refused>(); }

bool FakeClient::ReadsEnd() {
  std::array<std::byte, wire::kMaxMessageBytes> buffer;
  ssize_t length;
  while ((length = ReceivePacket(socket_.Get(), buffer)) > 0) {
  }
  return length == 0 || errno == ECONNRESET;
}

bool FakeClient::WaitForOrder(std::uint32_t epoch) const {
  const Nanos deadline = MonotonicNow() + 10 * kSecond;
  while (MonotonicNow() < deadline) {
    const std::uint32_t rung = page_->doorbell.load();
    if (page_->epoch.load() != epoch) return true;
    const timespec at_most{.tv_sec = 1};
    syscall(SYS_futex, &page_->doorbell, FUTEX_WAIT, rung, &at_most, nullptr, 0);
  }
  return false;
}

bool FakeClient::TakeToken() {
  std::uint32_t seen = Epoch();
  Send(wire::Wants{});
  while (WaitForOrder(seen)) {
    seen = Epoch();
    if (page_->gate.load() != wire::GateOrder::kClosed) return true;
  }
  return false;
}

}  // namespace tessera::server
