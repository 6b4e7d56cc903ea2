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
namespace {

constexpr const char* kDevice = "/dev/nvidia-uvm";

// The numbers of the descriptors that are open on the device in the process.
std::vector<int> DescriptorsOf(pid_t pid) {
  std::vector<int> numbers;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), gone)) {
    std::error_code closed;
    const auto target = std::filesystem::read_symlink(entry.path(), closed);
    const std::string name = entry.path().filename();
    int number = -1;
    if (!closed && target == kDevice &&
        std::from_chars(name.data(), name.data() + name.size(), number).ec == std::errc())
      numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

void ClientFiles::Hold(pid_t client) {
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, client, 0)));
  Files files;
  for (const int number : pidfd ? DescriptorsOf(client) : std::vector<int>()) {
    UniqueFd file(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.Get(), number, 0)));
    if (file) {
      files.push_back(std::move(file));
    } else if (errno != EBADF && !std::exchange(told_, true)) {
      log::Warn("a program of a space that is killed may end the others: its {} cannot be duplicated: {}", kDevice,
                std::strerror(errno));
    }
  }
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
  leaving.timer =
      std::make_unique<EventLoop::Timer>(loop_, [this, number] { loop_.Post([this, number] { Look(number); }); });
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
