#include "server/spaces/space_table.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "server/model/vgpu_request.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr const char* kPipes = "/pipe";
constexpr const char* kLogs = "/log";
constexpr const char* kRecord = "/daemon";
constexpr const char* kLongestSocket = "/control_privileged";  // of those that MPS makes in its directory
constexpr Nanos kUntilQuiet = 20 * kMillisecond;               // whether a closed space may go

Result<void> MakeFolder(const std::string& path) {
  // Users pass through, and see no names of others' spaces.
  if (mkdir(path.c_str(), 0711) == 0 || errno == EEXIST) return {};
  return FailErrno("cannot make the directory " + path);
}

std::unexpected<Error> OfAnotherUser(const std::string& name) {
  return Fail(EPERM, fmt::format("space {} belongs to another user", name),
              "choose another name: programs of a space share their faults, so they are of one user");
}

}  // namespace

Result<void> SpaceTable::CheckPlace(const std::string& name) const {
  if (setup_.program.empty())
    return Fail(ENOSYS, "spaces are not available: " + setup_.why_none, "see 'tessera doctor'");
  if (auto fits = CheckName(name); !fits || name.size() > kLongestName)
    return Fail(EINVAL, fmt::format("invalid name of a space: \"{}\"", name),
                fmt::format("use 1 to {} letters, digits, dots, dashes and underscores", kLongestName));
  const std::size_t longest = (setup_.folder + "/" + name + kPipes + kLongestSocket).size();
  if (longest >= sizeof(sockaddr_un::sun_path))
    return Fail(ENAMETOOLONG, fmt::format("the run directory's path is too long for the sockets of space {}", name),
                "choose a shorter --run-dir, or a shorter name");
  return {};
}

MpsPlace SpaceTable::PlaceOf(const std::string& name, uid_t uid, const std::string& gpu_uuid) const {
  const std::string folder = setup_.folder + "/" + name;
  return {.program = setup_.program, .pipes = folder + kPipes, .logs = folder + kLogs, .user = uid, .gpu = gpu_uuid};
}

Result<Space*> SpaceTable::Open(const std::string& name, uid_t uid, std::uint32_t gpu, const std::string& gpu_uuid) {
  if (auto fits = CheckPlace(name); !fits) return std::unexpected(fits.error());
  if (geteuid() != 0 && uid != geteuid())
    return Fail(EPERM, fmt::format("this daemon cannot run an MPS server for user {}", uid),
                "only a daemon of root serves several users");
  const auto absent = std::ranges::find(absent_, name, &SavedSpace::name);
  if (absent != absent_.end() && absent->uid != uid) return OfAnotherUser(name);
  Entry& entry = spaces_[name];
  if (!entry.space) {
    entry.gpu_uuid = gpu_uuid;
    if (auto made = Make(entry, {.name = name, .number = ++last_number_, .gpu = gpu, .uid = uid}); !made) {
      spaces_.erase(name);
      return std::unexpected(made.error());
    }
    if (absent != absent_.end()) absent_.erase(absent);
    return entry.space.get();
  }
  const Space::Identity& who = entry.space->Who();
  if (who.uid == uid && who.gpu == gpu) {
    entry.gpu_uuid = gpu_uuid;  // what an earlier daemon left has none, and is made again
    return entry.space.get();
  }
  if (!entry.space->Used())
    return Fail(EAGAIN, fmt::format("space {} is closing, and belongs to another user or GPU", name),
                "try again in a few seconds, or choose another name");
  if (who.uid != uid) return OfAnotherUser(name);
  return Fail(EXDEV, fmt::format("space {} is on GPU {}", name, who.gpu),
              fmt::format("use --gpu {}, or another name", who.gpu));
}

Result<std::uint32_t> SpaceTable::Enter(const std::string& name, uid_t uid, std::uint32_t gpu,
                                        const std::string& gpu_uuid) {
  auto space = Open(name, uid, gpu, gpu_uuid);
  if (!space) return std::unexpected(space.error());
  (*space)->Enter();
  return (*space)->Who().number;
}

Result<void> SpaceTable::Create(const std::string& name, uid_t uid, std::uint32_t gpu, const std::string& gpu_uuid) {
  if (const Space* there = Find(name); there && there->Kept())
    return Fail(EEXIST, fmt::format("space {} exists already", name), "choose another name");
  auto space = Open(name, uid, gpu, gpu_uuid);
  if (!space) return std::unexpected(space.error());
  (*space)->Keep(true);
  return {};
}

std::unexpected<Error> SpaceTable::NoSuch(const std::string& name) {
  return Fail(ENOENT, fmt::format("there is no space {}", name), "see 'tessera space ls'");
}

Result<void> SpaceTable::Remove(const std::string& name) {
  const bool absent = std::erase_if(absent_, [&name](const SavedSpace& each) { return each.name == name; }) > 0;
  Space* space = Find(name);
  if (!space) return absent ? Result<void>() : NoSuch(name);
  space->Keep(false);
  EndIfEmpty(name);
  return {};
}

// The entry has a space afterwards, also if that could not be opened.
Result<void> SpaceTable::Make(Entry& entry, Space::Identity identity) {
  const std::string name = identity.name;
  const std::string folder = setup_.folder + "/" + name;
  const MpsPlace place = PlaceOf(name, identity.uid, entry.gpu_uuid);
  entry.end = std::make_unique<EventLoop::Timer>(loop_, [this, name] { EndIfEmpty(name); });
  entry.space = std::make_unique<Space>(
      loop_, std::move(identity), place, folder + kRecord,
      Space::Host{.changed = [this](const Space& space) { on_change_(space); },
                  .closed = [this, name](const Space&) { loop_.Post([this, name] { Closed(name); }); }});
  for (const std::string& each : {setup_.folder, folder}) {
    if (auto made = MakeFolder(each); !made) return made;
  }
  return entry.space->Open();
}

void SpaceTable::Leave(std::string_view name) {
  const auto found = spaces_.find(name);
  if (found == spaces_.end()) return;
  Entry& entry = found->second;
  entry.space->Leave();
  if (!entry.space->Used()) entry.end->ArmIn(setup_.linger);
}

void SpaceTable::EndIfEmpty(const std::string& name) {
  Space* space = Find(name);
  if (space && !space->Used() && space->Present() != Space::State::kClosing) space->Close();
}

// A vGPU may have entered while it ended. It knows the space by its number.
void SpaceTable::Closed(const std::string& name) {
  const auto found = spaces_.find(name);
  if (found == spaces_.end()) return;
  Entry& entry = found->second;
  // The user's control program may hold its answer back, which must not hold up the loop. Through Post, because a timer
  // cannot end inside its own callback.
  if (entry.space->Asking()) {
    entry.end = std::make_unique<EventLoop::Timer>(loop_, [this, name] { loop_.Post([this, name] { Closed(name); }); });
    return entry.end->ArmIn(kUntilQuiet);
  }
  const Space::Identity who = entry.space->Who();
  const int vgpus = entry.space->VGpus();
  const bool kept = entry.space->Kept();
  entry.space.reset();
  std::error_code ignored;
  std::filesystem::remove_all(setup_.folder + "/" + name, ignored);
  if (vgpus == 0 && !kept) {
    spaces_.erase(found);
    return;
  }
  if (auto made = Make(entry, who); !made) log::Error("GPU {}: space {}: {}", who.gpu, name, made.error().Text());
  for (int n = 0; n < vgpus; ++n) entry.space->Enter();
  entry.space->Keep(kept);
}

std::optional<uid_t> SpaceTable::OwnerOf(std::string_view name) const {
  if (const Space* space = Find(name)) return space->Who().uid;
  const auto absent = std::ranges::find(absent_, name, &SavedSpace::name);
  return absent == absent_.end() ? std::nullopt : std::optional(absent->uid);
}

Space* SpaceTable::Find(std::string_view name) const {
  const auto found = spaces_.find(name);
  return found == spaces_.end() ? nullptr : found->second.space.get();
}

std::vector<const Space*> SpaceTable::All() const {
  std::vector<const Space*> all;
  for (const auto& [name, entry] : spaces_) all.push_back(entry.space.get());
  return all;
}

void SpaceTable::Tick() {
  for (const auto& [name, entry] : spaces_) {
    if (entry.space->VGpus() > 0) entry.space->Look();
  }
}

void SpaceTable::EndLeftOvers() {
  std::error_code ignored;
  for (const auto& folder : std::filesystem::directory_iterator(setup_.folder, ignored)) {
    const std::string name = folder.path().filename();
    struct stat pipes = {};
    if (spaces_.contains(name) || stat((folder.path().string() + kPipes).c_str(), &pipes) != 0) continue;
    Entry& entry = spaces_[name];
    if (auto made = Make(entry, {.name = name, .number = ++last_number_, .gpu = 0, .uid = pipes.st_uid}); made) {
      EndIfEmpty(name);
    } else {
      spaces_.erase(name);
    }
  }
}

}  // namespace tessera::server
