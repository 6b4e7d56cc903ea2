// A daemon for tests of the shim: it listens where the session connects, answers as the test says, and remembers what
// it was told.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "wire/page.h"
#include "wire/protocol.h"

namespace tessera::shim {

// Serves each client on a thread of its own. Thread-safe. Its pages stay mapped for good.
class FakeDaemon {
 public:
  // Its answers. Change one with Set, while nobody asks for it.
  struct Answers {
    wire::Welcome welcome{.grace_ns = kNever};
    std::string refuse_hello;   // if not empty: why
    std::string refuse_attach;  // likewise
    wire::Attached attached{.context_bytes = 1 << 20, .memory_total = 16ull << 30};
    std::function<void(wire::Page&)> page = [](wire::Page&) {};  // what stands in a new page
    std::function<wire::Reserved(std::uint64_t)> reserve = [](std::uint64_t bytes) {
      return wire::Reserved{.bytes = bytes};
    };
    std::function<wire::Reserved(std::uint64_t)> blank = [](std::uint64_t bytes) {
      return wire::Reserved{.bytes = bytes};
    };
    // By GPU.
    std::function<wire::Reserved(std::uint32_t)> context = [](std::uint32_t) { return wire::Reserved{.bytes = 1}; };
    std::function<wire::RoomGranted(std::uint64_t)> room = [](std::uint64_t bytes) {
      return wire::RoomGranted{.bytes = bytes};
    };
    bool refuse_exports = false;
  };
  // A message as it came.
  struct Told {
    wire::Header header;
    std::vector<std::byte> packet;
    std::vector<UniqueFd> fds;
  };

  explicit FakeDaemon(const std::string& path);
  // The session of its client is lost.
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;

  template <typename Change>
  void Set(Change&& change) {
    const MutexLock lock(mutex_);
    change(answers_);
  }

  // Messages about a GPU so far, in order.
  template <typename Body>
  std::vector<Body> All(std::uint32_t gpu) const {
    const MutexLock lock(mutex_);
    return AllLocked<Body>(gpu);
  }
  template <typename Body>
  std::size_t Count(std::uint32_t gpu) const {
    return All<Body>(gpu).size();
  }
  // Waits until there are so many, and returns the last one of them.
  template <typename Body>
  Body Await(std::uint32_t gpu, std::size_t count = 1) {
    const MutexLock lock(mutex_);
    for (;;) {
      if (const auto all = AllLocked<Body>(gpu); all.size() >= count) return all[count - 1];
      changed_.Wait(mutex_);
    }
  }
  // The page of a GPU that is attached; its number is the first byte of its UUID. Nobody else may change it.
  wire::Page& Page(std::uint32_t gpu);
  // Gives an order, as docs/protocol.md says.
  void Order(std::uint32_t gpu, wire::GateOrder order);
  static void Order(wire::Page& page, wire::GateOrder order);

  // The mover's end of the line that was handed out last; empty if none was since.
  UniqueFd TakeLine();

 private:
  template <typename Body>
  std::vector<Body> AllLocked(std::uint32_t gpu) const TESSERA_REQUIRES(mutex_) {
    std::vector<Body> all;
    for (const Told& told : told_) {
      if (told.header.gpu != gpu) continue;
      if (const auto body = wire::ReadBody<Body>(told.header, told.packet)) all.push_back(*body);
    }
    return all;
  }

  void Accept();
  void Serve(UniqueFd client);
  void Answer(int client, const Told& told);
  template <typename Body>
  void Send(int client, const Body& body, std::uint32_t gpu = 0, std::vector<int> fds = {});
  void Attach(int client, const wire::Attach& request);
  void Import(int client, const wire::Import& request);
  int OpenLine() TESSERA_REQUIRES(mutex_);

  UniqueFd listener_;
  mutable Mutex mutex_;
  CondVar changed_;
  Answers answers_ TESSERA_GUARDED_BY(mutex_);
  std::deque<Told> told_ TESSERA_GUARDED_BY(mutex_);
  std::map<std::uint32_t, wire::Page*> pages_ TESSERA_GUARDED_BY(mutex_);
  UniqueFd line_ TESSERA_GUARDED_BY(mutex_);
  std::set<int> clients_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::thread> serving_ TESSERA_GUARDED_BY(mutex_);
  bool ends_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread accepting_;
};

}  // namespace tessera::shim
