#include "shim/testing/fake_daemon.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <new>

#include "base/seqpacket.h"

namespace tessera::shim {

FakeDaemon::FakeDaemon(const std::string& path) : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  unlink(path.c_str());
  EXPECT_EQ(bind(listener_.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(listener_.Get(), 4), 0);
  accepting_ = std::thread([this] { Accept(); });
}

FakeDaemon::~FakeDaemon() {
  std::vector<std::thread> serving;
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    shutdown(listener_.Get(), SHUT_RDWR);
    for (const int client : clients_) shutdown(client, SHUT_RDWR);
    serving.swap(serving_);
  }
  accepting_.join();
  for (std::thread& thread : serving) thread.join();
}

void FakeDaemon::Accept() {
  for (;;) {
    UniqueFd client(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC));
    const MutexLock lock(mutex_);
    if (!client || ends_) return;
    clients_.insert(client.Get());
    serving_.emplace_back([this, client = std::move(client)]() mutable { Serve(std::move(client)); });
  }
}

void FakeDaemon::Serve(UniqueFd client) {
  for (;;) {
    Told told{.header = {}, .packet = std::vector<std::byte>(wire::kMaxMessageBytes), .fds = {}};
    UniqueFd fds[kMostDescriptors];
    std::size_t received = 0;
    const ssize_t length = ReceivePacket(client.Get(), told.packet, fds, received);
    if (length <= 0) break;
    told.packet.resize(static_cast<std::size_t>(length));
    if (wire::ReadHeader(told.packet, told.header) != wire::Fault::kNone) break;
    for (std::size_t i = 0; i < received; ++i) told.fds.push_back(std::move(fds[i]));
    const Told* kept;
    {
      const MutexLock lock(mutex_);
      kept = &told_.emplace_back(std::move(told));
    }
    changed_.NotifyAll();
    Answer(client.Get(), *kept);
  }
  const MutexLock lock(mutex_);
  clients_.erase(client.Get());
}

template <typename Body>
void FakeDaemon::Send(int client, const Body& body, std::uint32_t gpu, std::vector<int> fds) {
  auto message = wire::Make(body);
  message.header.gpu = gpu;
  SendPacket(client, wire::BytesOf(message), fds);
}

namespace {

wire::Refused Refusal(const std::string& why) {
  wire::Refused refused{.code = 1};
  wire::SetText(refused.text, why);
  return refused;
}

}  // namespace

// The lock is released before each answer, so that a handler may wait for what the test does.
void FakeDaemon::Answer(int client, const Told& told) {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    answers = answers_;
  }
  const auto read = [&]<typename Body>(Body) { return wire::ReadBody<Body>(told.header, told.packet); };
  if (read(wire::Hello{})) {
    if (answers.refuse_hello.empty()) return Send(client, answers.welcome);
    return Send(client, Refusal(answers.refuse_hello));
  }
  if (const auto request = read(wire::Attach{})) {
    if (answers.refuse_attach.empty()) return Attach(client, *request);
    return Send(client, Refusal(answers.refuse_attach));
  }
  if (const auto request = read(wire::Reserve{})) return Send(client, answers.reserve(request->bytes));
  if (const auto request = read(wire::Blank{})) return Send(client, answers.blank(request->bytes));
  if (const auto request = read(wire::Context{}); request && request->delta > 0)
    return Send(client, answers.context(told.header.gpu));
  if (const auto request = read(wire::Room{})) return Send(client, answers.room(request->bytes));
  if (read(wire::Export{})) {
    if (!answers.refuse_exports) return Send(client, wire::Exported{});
    return Send(client, Refusal("no more exports"));
  }
  if (read(wire::Unexport{})) return Send(client, wire::Exported{});
  if (const auto request = read(wire::Import{})) return Import(client, *request);
  if (read(wire::Line{})) {
    UniqueFd line;
    {
      const MutexLock lock(mutex_);
      line.Reset(OpenLine());
    }
    return Send(client, wire::LineOpened{}, told.header.gpu, {line.Get()});
  }
  if (read(wire::Query{})) return Send(client, wire::View{});
}

int FakeDaemon::OpenLine() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  line_.Reset(ends[0]);
  return ends[1];
}

void FakeDaemon::Attach(int client, const wire::Attach& request) {
  const UniqueFd memory(memfd_create("page", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(memory.Get(), wire::kPageBytes), 0);
  void* mapped = mmap(nullptr, wire::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.Get(), 0);
  auto* page = new (mapped) wire::Page;
  page->version = wire::kProtocolVersion;
  const std::uint32_t gpu = request.gpu.bytes[0];
  wire::Attached attached;
  UniqueFd line;
  {
    const MutexLock lock(mutex_);
    answers_.page(*page);
    attached = answers_.attached;
    pages_[gpu] = page;
    changed_.NotifyAll();
    if (attached.swaps) line.Reset(OpenLine());
  }
  std::vector<int> fds{memory.Get()};
  if (line) fds.push_back(line.Get());
  Send(client, attached, gpu, fds);
}

// Answers with the exports under the key, as far as descriptors fit into one message.
void FakeDaemon::Import(int client, const wire::Import& request) {
  wire::Imported terms;
  std::vector<int> fds;
  std::uint32_t gpu = 0;
  {
    const MutexLock lock(mutex_);
    for (const Told& told : told_) {
      const auto exported = wire::ReadBody<wire::Export>(told.header, told.packet);
      if (!exported || exported->key != request.key) continue;
      gpu = told.header.gpu;
      terms = {.gpu = {{static_cast<std::uint8_t>(gpu)}},  // as FakeCuda's device `gpu` - 1
               .bytes = exported->bytes,
               .offset = exported->offset,
               .chunk_bytes = exported->chunk_bytes,
               .chunks = exported->chunks};
      for (std::uint32_t i = 0; i < told.fds.size(); ++i)
        if (exported->first + i >= request.first && fds.size() < wire::kMostExported) fds.push_back(told.fds[i].Get());
    }
  }
  if (terms.chunks == 0) return Send(client, Refusal("there is no such export"));
  terms.count = static_cast<std::uint32_t>(fds.size());
  Send(client, terms, gpu, fds);
}

wire::Page& FakeDaemon::Page(std::uint32_t gpu) {
  const MutexLock lock(mutex_);
  while (!pages_.contains(gpu)) changed_.Wait(mutex_);
  return *pages_[gpu];
}

void FakeDaemon::Order(std::uint32_t gpu, wire::GateOrder order) { Order(Page(gpu), order); }

void FakeDaemon::Order(wire::Page& page, wire::GateOrder order) {
  page.gate = order;
  page.epoch.fetch_add(1, std::memory_order_release);
  page.doorbell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &page.doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

UniqueFd FakeDaemon::TakeLine() {
  const MutexLock lock(mutex_);
  return std::move(line_);
}

}  // namespace tessera::shim
