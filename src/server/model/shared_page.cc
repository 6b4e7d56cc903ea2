#include "server/model/shared_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <new>

namespace tessera::server {

Result<SharedPage> SharedPage::Create(std::uint32_t gpu) {
  UniqueFd fd(memfd_create("tessera-page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return FailErrno("cannot make a shared page");
  if (ftruncate(fd.Get(), wire::kPageBytes) != 0) return FailErrno("cannot size a shared page");
  if (fcntl(fd.Get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return FailErrno("cannot seal a shared page");
  }
  void* memory = mmap(nullptr, wire::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.Get(), 0);
  if (memory == MAP_FAILED) return FailErrno("cannot map a shared page");
  auto* page = new (memory) wire::Page{.version = wire::kProtocolVersion, .gpu = gpu};
  return SharedPage(std::move(fd), page);
}

SharedPage::SharedPage(SharedPage&& other) noexcept
    : fd_(std::move(other.fd_)),
      page_(std::exchange(other.page_, nullptr)),
      epoch_(other.epoch_),
      place_(other.place_),
      burst_(other.burst_) {}

SharedPage::~SharedPage() {
  if (page_) munmap(page_, wire::kPageBytes);
}

void SharedPage::Give(const GateSetting& setting, Bell bell) {
  page_->gate.store(setting.gate, std::memory_order_relaxed);
  page_->window_ns.store(setting.window, std::memory_order_relaxed);
  page_->idle_grace_ns.store(setting.idle_grace, std::memory_order_relaxed);
  page_->epoch.store(++epoch_, std::memory_order_release);
  if (bell == Bell::kWake) Ring();
}

void SharedPage::SayGpu(const wire::Uuid& uuid) {
  std::uint64_t words[2];
  static_assert(sizeof words == sizeof uuid.bytes);
  std::memcpy(words, uuid.bytes, sizeof words);
  page_->gpu_uuid[0].store(words[0]);
  page_->gpu_uuid[1].store(words[1]);
}

void SharedPage::GivePlace(wire::SmPlace place, bool burst) {
  if (std::exchange(place_, place) == place && std::exchange(burst_, burst) == burst) return;
  burst_ = burst;
  page_->sm_place.store(place.Word(), std::memory_order_release);
  page_->sm_burst.store(burst ? 1 : 0, std::memory_order_release);
  Ring();
}

void SharedPage::Ring() {
  page_->doorbell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &page_->doorbell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tessera::server
