#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/result.h"

namespace tessera::server {

// Bounds what the programs of one user may take of the daemon: programs under the kernel gate (a thread each), and file
// descriptors, so that a hostile user leaves enough for the others, whatever quotas say. Runs on the event loop's
// thread.
class UserBounds {
 public:
  // Root's programs may have twice as much: on many nodes containers of several people run as root.
  struct Most {
    std::size_t gated = 256;          // programs under the kernel gate, each with all that it starts
    std::size_t gated_processes = 0;  // processes in all of them
    std::size_t descriptors = 0;      // of all kinds
  };
  // For a daemon that may have so many descriptors: a quarter of them for one user, and a quarter of these for
  // processes under the kernel gate.
  static Most ForDescriptors(std::size_t all);
  // The same for this process's limit.
  static Most Usual();

  enum class Kind { kConnection, kGated, kOther };
  // Descriptors that the daemon opens for one of a kind, at most.
  static constexpr unsigned kForConnection = 4;  // its socket, two pidfds, one that comes with a packet
  static constexpr unsigned kForAttachment = 3;  // of a program to a GPU: the page and the line, with its far end
  static constexpr unsigned kForGated = 9;       // the listener and the record, twice each, the supervisor's own
  static constexpr unsigned kForGuest = 4;       // three pidfds, and a page; more than one GPU is rare

  explicit UserBounds(Most most) : most_(most) {}
  UserBounds(const UserBounds&) = delete;

  // A user's right to have something. It goes back when the object goes, which must not outlive the bounds.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept;
    ~Claim() { GiveBack(); }

   private:
    friend class UserBounds;
    void GiveBack();
    UserBounds* bounds_ = nullptr;
    uid_t uid_ = 0;
    Kind kind_ = Kind::kOther;
    unsigned descriptors_ = 0;
  };
  // EMFILE: the user has as much already; says of what.
  Result<Claim> Take(uid_t uid, Kind kind, unsigned descriptors);
  std::size_t CountOf(uid_t uid, Kind kind) const;

  // How many more processes the user's programs may have behind kernel gates: supervisors count it down and up, each on
  // its own thread.
  std::shared_ptr<std::atomic<std::int64_t>> GatedProcesses(uid_t uid);

 private:
  struct Use {
    std::array<std::size_t, 3> count{};  // by kind
    std::size_t descriptors = 0;
    std::weak_ptr<std::atomic<std::int64_t>> gated_processes;
    bool Any() const { return descriptors != 0 || !gated_processes.expired(); }
  };
  void GiveBack(const Claim& claim);
  static std::size_t For(uid_t uid, std::size_t most) { return uid == 0 ? 2 * most : most; }

  const Most most_;
  std::map<uid_t, Use> uses_;
};

}  // namespace tessera::server
