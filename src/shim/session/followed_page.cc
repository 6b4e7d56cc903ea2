#include "shim/session/followed_page.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "shim/process/say.h"
#include "shim/session/session.h"

namespace tessera::shim {

wire::Page* FollowedPage::Map(const UniqueFd& fd) {
  void* memory = mmap(nullptr, wire::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.Get(), 0);
  if (memory == MAP_FAILED) {
    Session::Instance().Complain(std::string("cannot map the daemon's page: ") + strerror(errno));
    return nullptr;
  }
  auto* page = static_cast<wire::Page*>(memory);
  if (page->magic != wire::kPageMagic || page->version != wire::kProtocolVersion) {
    Session::Instance().Complain(
        "the daemon's page has another layout; restart tesserad or this program with one version of Tessera");
    munmap(memory, wire::kPageBytes);
    return nullptr;
  }
  return page;
}

void FollowedPage::Follow(wire::Page* page, std::uint32_t gpu) {
  Removed();
  gpu_ = gpu;
  page_ = page;
}

void FollowedPage::FollowOwn(std::uint64_t returned, bool block) {
  Removed();
  const wire::Page* before = Get();
  own_.memory_max = before->memory_max.load();
  own_.memory_available = before->memory_available.load();
  own_.memory_credit = before->memory_credit.load();
  own_.memory_returned = returned;
  own_.memory_credit_keep = UINT64_MAX >> 1;
  own_.idle_grace_ns = kNever;
  own_.away = before->away.load();
  for (int i = 0; i < 2; ++i) own_.gpu_uuid[i] = before->gpu_uuid[i].load();
  own_.gate = block ? wire::GateOrder::kClosed : wire::GateOrder::kOpen;
  own_.epoch.fetch_add(2);
  page_ = &own_;
}

bool FollowedPage::Removed() {
  if (removed_.load(std::memory_order_relaxed)) return true;
  const wire::Page* page = Get();
  if (!page || page->removed.load(std::memory_order_acquire) == 0) return false;
  if (!removed_.exchange(true))
    Say("the program's vGPU on GPU %u was removed: all work that it gives the GPU is refused (CUDA error %d)", Gpu(),
        static_cast<int>(cuda::CUDA_ERROR_DEVICE_UNAVAILABLE));
  return true;
}

void FollowedPage::Ring(wire::Page* page) {
  page->doorbell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &page->doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void FollowedPage::WaitForRing(std::uint32_t seen, Nanos timeout) const {
  const timespec t{.tv_sec = timeout / kSecond, .tv_nsec = timeout % kSecond};
  syscall(SYS_futex, &Get()->doorbell, FUTEX_WAIT, seen, &t, nullptr, 0);
}

void FollowedPage::OpenOwn() {
  own_.gate = wire::GateOrder::kOpen;
  own_.epoch.fetch_add(1);
}

}  // namespace tessera::shim
