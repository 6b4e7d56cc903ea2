#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/loop/event_loop.h"
#include "server/spaces/space.h"
#include "server/state/state_file.h"

namespace tessera::server {

// All spaces of the machine, by name. A space begins with its first vGPU, and ends some time after the last one has
// left: programs that start one after the other find its MPS server running. Runs on the loop's thread.
class SpaceTable {
 public:
  struct Setup {
    std::string folder;   // where each space has its directory
    std::string program;  // the MPS control daemon's; empty: spaces cannot be made, for this reason:
    std::string why_none;
    Nanos linger = 0;  // of a space without vGPUs
  };
  // Called on the loop's thread when a space's server or its state is another, also while it ends.
  using OnChange = std::function<void(const Space&)>;

  SpaceTable(EventLoop& loop, Setup setup, OnChange on_change)
      : loop_(loop), setup_(std::move(setup)), on_change_(std::move(on_change)) {}
  SpaceTable(const SpaceTable&) = delete;

  // A vGPU of this user on this GPU enters the space, which is made if there is none: its number. EPERM: another
  // user's; EXDEV: it is on another GPU; ENOSYS: MPS is not there; the errors of Space::Open.
  Result<std::uint32_t> Enter(const std::string& name, uid_t uid, std::uint32_t gpu, const std::string& gpu_uuid);
  void Leave(std::string_view name);

  // Makes a space that lasts, also without vGPUs: the errors of Enter, and EEXIST.
  Result<void> Create(const std::string& name, uid_t uid, std::uint32_t gpu, const std::string& gpu_uuid);
  // It ends now if it has no vGPU, and with its last one otherwise. An absent one is forgotten. ENOENT: there is none.
  Result<void> Remove(const std::string& name);
  // The ENOENT of Remove, also for callers who may not see a space.
  static std::unexpected<Error> NoSuch(const std::string& name);

  // A space that was made to last cannot be made now, as while its GPU is missing: its name stays its user's, and the
  // next daemon tries again.
  void Miss(SavedSpace saved) { absent_.push_back(std::move(saved)); }
  const std::vector<SavedSpace>& Absent() const { return absent_; }

  // The user of a space, of an absent one, too; none: there is no such space.
  std::optional<uid_t> OwnerOf(std::string_view name) const;
  // Null: there is none, or it is absent. A space without vGPUs may still be found.
  Space* Find(std::string_view name) const;
  // By name. Also those that are closing.
  std::vector<const Space*> All() const;
  bool Any() const { return !spaces_.empty(); }
  const Setup& Terms() const { return setup_; }

  // To be called once a second, and when a GPU reports a fault: looks at all spaces with vGPUs.
  void Tick();
  // Ends the spaces that an earlier daemon left and that no vGPU has entered again.
  void EndLeftOvers();

  static constexpr std::size_t kLongestName = 31;  // a path of MPS sockets must fit into sun_path (unix(7))

 private:
  struct Entry {
    std::unique_ptr<Space> space;
    std::string gpu_uuid;
    std::unique_ptr<EventLoop::Timer> end;  // when it has no vGPU, or has closed and still asks
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  Result<void> CheckPlace(const std::string& name) const;
  MpsPlace PlaceOf(const std::string& name, uid_t uid, const std::string& gpu_uuid) const;
  // The space of this name, which is made if there is none.
  Result<Space*> Open(const std::string& name, uid_t uid, std::uint32_t gpu, const std::string& gpu_uuid);
  Result<void> Make(Entry& entry, Space::Identity identity);
  void EndIfEmpty(const std::string& name);
  void Closed(const std::string& name);

  EventLoop& loop_;
  const Setup setup_;
  const OnChange on_change_;
  Entries spaces_;
  std::vector<SavedSpace> absent_;
  std::uint32_t last_number_ = 0;
};

}  // namespace tessera::server
