#include "server/spaces/client_files.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "server/record/log.h"

namespace tessera::server {

// The numbers of the descriptors that are open on the device in the process.
std::vector<int> ClientFiles::DescriptorsOf(pid_t client) const {
  std::vector<int> numbers;
  std::error_code gone;
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/fd", client), gone);
  for (std::size_t seen = 0; !gone && entry != std::filesystem::directory_iterator() && seen < kMostSeen; ++seen) {
    std::error_code closed;
    const auto target = std::filesystem::read_symlink(entry->path(), closed);
    const std::string name = entry->path().filename();
    int number = -1;
    if (!closed && target == device_ &&
        std::from_chars(name.data(), name.data() + name.size(), number).ec == std::errc())
      numbers.push_back(number);
    if (numbers.size() == kMostFiles) break;
    entry.increment(gone);
  }
  return numbers;
}

// The path is one of the client's, who may have anything there.
ClientFiles::Files ClientFiles::Duplicates(pid_t client) {
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, client, 0)));
  Files files;
  for (const int number : pidfd && !CanCloseNoMore() ? DescriptorsOf(client) : std::vector<int>()) {
    UniqueFd file(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.Get(), number, 0)));
    if (file && IsPrompt(file.Get())) {
      files.push_back(std::move(file));
    } else if (file) {
      CloseElsewhere(std::move(file));
    } else if (errno != EBADF && errno != ESRCH && !std::exchange(told_, true)) {
      log::Warn("a program of a space that is killed may end the others: its {} cannot be duplicated: {}", device_,
                std::strerror(errno));
    }
  }
  return files;
}

void ClientFiles::Hold(pid_t client) {
  Files files = Duplicates(client);
  Close(std::exchange(files_[client], std::move(files)));
  if (files_[client].empty()) files_.erase(client);
}

void ClientFiles::Release(pid_t client, std::function<bool()> stands) {
  const auto found = files_.find(client);
  if (found == files_.end()) return;
  const std::uint64_t number = ++last_;
  Leaving& leaving = leaving_[number];
  leaving = {.files = std::move(found->second), .stands = std::move(stands)};
  files_.erase(found);
  // Through Post, because a timer cannot end inside its own callback.
  leaving.timer = std::make_unique<EventLoop::Timer>(loop_, [this, number] {
    loop_.Post([this, number, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) Look(number);
    });
  });
  leaving.timer->ArmIn(kLook);
}

void ClientFiles::Look(std::uint64_t number) {
  const auto found = leaving_.find(number);
  if (found == leaving_.end()) return;
  Leaving& leaving = found->second;
  if (!leaving.stands()) leaving.ran += kLook;
  if (leaving.ran < kAfter) return leaving.timer->ArmIn(kLook);
  Close(std::move(leaving.files));
  leaving_.erase(found);
}

void ClientFiles::Close(Files files) {
  for (UniqueFd& file : files) CloseDevice(std::move(file));
}

}  // namespace tessera::server
