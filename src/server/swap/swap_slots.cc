#include "server/swap/swap_slots.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "server/swap/chunks.h"
#include "server/swap/swap_file.h"
#include "wire/swap_table.h"

namespace tessera::server {
namespace {

std::uint64_t kept = 0;  // of all GPUs

bool MayKeepMore() {
  rlimit limit;
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && kept < limit.rlim_cur / 4;
}

}  // namespace

Result<SwapSlots> SwapSlots::Make(std::uint64_t bytes) {
  UniqueFd table(memfd_create("tessera-swap-slots", MFD_CLOEXEC));
  const std::uint64_t entries = UpToChunks(bytes) / wire::kChunkBytes;
  if (!table || ftruncate(table.Get(), static_cast<off_t>(entries * wire::kTableEntryBytes)) != 0)
    return FailErrno("make the table of the swap pool");
  SwapSlots slots = Over(std::move(table));
  if (slots.table() < 0) return FailErrno("make the table of the swap pool");
  return slots;
}

SwapSlots SwapSlots::Over(UniqueFd table) {
  SwapSlots slots;
  slots.table_ = OutOfTheWay(std::move(table));
  return slots;
}

void SwapSlots::Fit(std::uint64_t bytes) {
  struct stat status{};
  const auto wanted = static_cast<off_t>(UpToChunks(bytes) / wire::kChunkBytes * wire::kTableEntryBytes);
  if (fstat(table_.Get(), &status) == 0 && status.st_size < wanted) (void)!ftruncate(table_.Get(), wanted);
}

SwapSlots::~SwapSlots() { kept -= slots_.size(); }

bool SwapSlots::Keep(std::uint64_t number, UniqueFd memory) {
  if (!memory || !MayKeepMore() || !slots_.emplace(number, std::move(memory)).second) return false;
  ++kept;
  if (left_) left_->Kept(number, *this);
  return true;
}

void SwapSlots::Forget(std::uint64_t number) {
  kept -= slots_.erase(number);
  if (left_) left_->Forgotten(number, *this);
}

int SwapSlots::MemoryOf(std::uint64_t number) const {
  const auto found = slots_.find(number);
  return found == slots_.end() ? -1 : found->second.Get();
}

Result<std::vector<wire::SwapEntry>> SwapSlots::Entries() const {
  struct stat status{};
  if (fstat(table_.Get(), &status) != 0) return FailErrno("look at the table of the swap pool");
  std::vector<wire::SwapEntry> entries(static_cast<std::size_t>(status.st_size) / sizeof(wire::SwapEntry));
  const auto bytes = static_cast<ssize_t>(entries.size() * sizeof(wire::SwapEntry));
  if (pread(table_.Get(), entries.data(), static_cast<std::size_t>(bytes), 0) != bytes)
    return FailErrno("read the table of the swap pool");
  return entries;
}

Result<std::vector<wire::SwapEntry>> SwapSlots::LentOf(pid_t owner) const {
  const auto entries = Entries();
  if (!entries) return entries;
  std::vector<wire::SwapEntry> lent;
  for (const wire::SwapEntry& entry : *entries) {
    const bool is = entry.key != 0 && entry.owner == owner && entry.Has(wire::SwapEntry::kShared);
    if (is && Has(entry.memory)) lent.push_back(entry);
  }
  return lent;
}

std::vector<std::uint64_t> SwapSlots::Free() const {
  std::vector<std::uint64_t> free;
  const auto entries = Entries();
  if (!entries) return free;
  for (const wire::SwapEntry& entry : *entries) {
    if (entry.key == 0 && !entry.Has(wire::SwapEntry::kTransit) && Has(entry.memory)) free.push_back(entry.memory);
  }
  return free;
}

std::optional<SwapSlots::Slot> SwapSlots::After(std::uint64_t number) const {
  const auto found = slots_.upper_bound(number);
  if (found == slots_.end()) return {};
  return Slot{.number = found->first, .memory = found->second.Get()};
}

}  // namespace tessera::server
