#include "guard/record/tree_record.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>

#include "base/process/process_start.h"
#include "base/processor/processor.h"

namespace tessera::guard {
namespace {

constexpr std::uint64_t kMagic = 0x7472656574736574;
constexpr std::size_t kFirstSlots = 256;
constexpr std::size_t kReserve = 8;  // entries that one request may add

template <std::size_t N>
void SetText(std::array<char, N>& to, const std::string& text) {
  to.fill('\0');
  text.copy(to.data(), N - 1);
}

}  // namespace

struct TreeRecord::Header {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t by_operator = 0;
  std::array<char, 512> vgpus{};
  std::array<char, 64> program{};
  CallInHand call;
};

struct TreeRecord::Slot {
  Kind kind = Kind::kFree;
  std::uint32_t client = 0;
  std::uint64_t handle = 0, parent = 0, memory = 0, bytes = 0;
  std::uint64_t order = 0, start = 0;
  std::uint32_t device = 0;
  std::int32_t process = 0, holder = 0, fd = -1;
  std::uint32_t cls = 0, detail = 0;
};

namespace {

template <typename Header>
constexpr std::size_t kHeaderBytes = (sizeof(Header) + kMostPageBytes - 1) / kMostPageBytes * kMostPageBytes;

}  // namespace

Result<TreeRecord> TreeRecord::Create(const Program& program) {
  TreeRecord record;
  record.memory_.Reset(memfd_create("tessera-gate", MFD_CLOEXEC));
  constexpr std::size_t kBytes = kHeaderBytes<Header> + kFirstSlots * sizeof(Slot);
  if (!record.memory_ || ftruncate(record.memory_.Get(), kBytes) != 0)
    return FailErrno("cannot make the record of a program behind the kernel gate");
  if (auto mapped = record.Map(kFirstSlots); !mapped) return std::unexpected(mapped.error());
  new (record.header_) Header();
  record.header_->pid = program.pid;
  record.header_->uid = program.uid;
  record.header_->by_operator = program.by_operator ? 1 : 0;
  SetText(record.header_->vgpus, program.vgpus);
  SetText(record.header_->program, program.name);
  for (std::size_t i = kFirstSlots; i-- > 0;) record.free_.push_back(static_cast<std::uint32_t>(i));
  return record;
}

Result<TreeRecord> TreeRecord::Open(UniqueFd memory) {
  TreeRecord record;
  record.memory_ = std::move(memory);
  struct stat status{};
  if (fstat(record.memory_.Get(), &status) != 0) return FailErrno("cannot read the record of the kernel gate");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  const Error other{EPROTO, "a program behind the kernel gate was left by another version of Tessera",
                    "start the program again"};
  if (bytes < kHeaderBytes<Header>) return std::unexpected(other);
  if (auto mapped = record.Map((bytes - kHeaderBytes<Header>) / sizeof(Slot)); !mapped)
    return std::unexpected(mapped.error());
  if (record.header_->magic != kMagic || record.header_->version != kVersion) return std::unexpected(other);
  for (std::size_t i = record.slots_.size(); i-- > 0;) {
    if (record.slots_[i].kind == Kind::kFree) record.free_.push_back(static_cast<std::uint32_t>(i));
  }
  for (const Kind kind : {Kind::kClient, Kind::kObject}) {
    for (const Slot* slot : record.Sorted(kind)) {
      const auto index = static_cast<std::uint32_t>(slot - record.slots_.data());
      auto& table = kind == Kind::kClient ? record.clients_ : record.objects_;
      // Twice: killed between the new entry and the end of the old one.
      if (const auto [at, added] = table.try_emplace({slot->client, slot->handle}, index); !added) {
        record.slots_[at->second].kind = Kind::kFree;
        record.free_.push_back(std::exchange(at->second, index));
      }
      record.last_order_ = std::max(record.last_order_, slot->order);
    }
  }
  return record;
}

TreeRecord::TreeRecord(TreeRecord&& other) noexcept
    : memory_(std::move(other.memory_)),
      header_(std::exchange(other.header_, nullptr)),
      slots_(std::exchange(other.slots_, {})),
      free_(std::move(other.free_)),
      clients_(std::move(other.clients_)),
      objects_(std::move(other.objects_)),
      last_order_(other.last_order_) {}

TreeRecord::~TreeRecord() {
  if (header_) munmap(header_, kHeaderBytes<Header>);
  if (!slots_.empty()) munmap(slots_.data(), slots_.size_bytes());
}

// The header and the entries apart, as only the entries move when they become more.
Result<void> TreeRecord::Map(std::size_t slots) {
  const auto map = [&](std::size_t bytes, std::size_t offset) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory_.Get(),
                static_cast<off_t>(offset));
  };
  void* header = map(kHeaderBytes<Header>, 0);
  if (header == MAP_FAILED) return FailErrno("cannot map the record of the kernel gate");
  header_ = static_cast<Header*>(header);
  void* entries = map(slots * sizeof(Slot), kHeaderBytes<Header>);
  if (entries == MAP_FAILED) return FailErrno("cannot map the record of the kernel gate");
  slots_ = {static_cast<Slot*>(entries), slots};
  return {};
}

bool TreeRecord::Grow() {
  const std::size_t before = slots_.size(), after = 2 * before;
  if (ftruncate(memory_.Get(), static_cast<off_t>(kHeaderBytes<Header> + after * sizeof(Slot))) != 0) return false;
  void* moved = mremap(slots_.data(), slots_.size_bytes(), after * sizeof(Slot), MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) return false;
  slots_ = {static_cast<Slot*>(moved), after};
  for (std::size_t i = after; i-- > before;) free_.push_back(static_cast<std::uint32_t>(i));
  return true;
}

TreeRecord::Program TreeRecord::Owner() const {
  const auto text = [](const auto& field) {
    return std::string(field.begin(), std::find(field.begin(), field.end(), '\0'));
  };
  return {.vgpus = text(header_->vgpus),
          .name = text(header_->program),
          .pid = header_->pid,
          .uid = header_->uid,
          .by_operator = header_->by_operator != 0};
}

Result<void> TreeRecord::SetVGpus(int memory, const std::string& vgpus) {
  decltype(Header::vgpus) names;
  SetText(names, vgpus);
  // Within one page: whoever kills this process, either all of it is written or nothing.
  static_assert(offsetof(Header, vgpus) + sizeof names <= 4096);
  if (pwrite(memory, names.data(), names.size(), offsetof(Header, vgpus)) != static_cast<ssize_t>(names.size()))
    return FailErrno("cannot write the record of a program behind the kernel gate");
  return {};
}

bool TreeRecord::Client::Lives() const {
  const auto now = ProcessStart(process);
  return now && (start == 0 || *now == start);
}

CallInHand& TreeRecord::Call() { return header_->call; }

bool TreeRecord::Reserve() { return free_.size() >= kReserve || Grow(); }

void TreeRecord::Put(Kind kind, const Key& key, const Slot& slot) {
  if (free_.empty() && !Grow()) return;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& at = slots_[index];
  at = slot;
  at.kind = Kind::kFree;
  at.client = key.first;
  at.handle = key.second;
  at.order = ++last_order_;
  std::atomic_signal_fence(std::memory_order_release);  // a kill keeps the order of this thread's stores
  at.kind = kind;
  std::atomic_signal_fence(std::memory_order_release);
  auto& table = kind == Kind::kClient ? clients_ : objects_;
  const auto [known, added] = table.try_emplace(key, index);
  if (added) return;
  slots_[known->second].kind = Kind::kFree;
  free_.push_back(std::exchange(known->second, index));
}

void TreeRecord::Erase(Kind kind, const Key& key) {
  auto& table = kind == Kind::kClient ? clients_ : objects_;
  const auto found = table.find(key);
  if (found == table.end()) return;
  slots_[found->second].kind = Kind::kFree;
  free_.push_back(found->second);
  table.erase(found);
}

void TreeRecord::Put(const Client& client) {
  Put(Kind::kClient, {client.client, client.client},
      {.start = client.start, .process = client.process, .holder = client.holder, .fd = client.fd});
}

void TreeRecord::EraseClient(std::uint32_t client) { Erase(Kind::kClient, {client, client}); }

void TreeRecord::Added(const MemoryObjects::Entry& entry) {
  Put(Kind::kObject, {entry.client, entry.handle},
      {.parent = entry.parent, .memory = entry.memory, .bytes = entry.bytes, .device = entry.device});
}

void TreeRecord::Erased(std::uint32_t client, MemoryObjects::Handle handle) { Erase(Kind::kObject, {client, handle}); }

void TreeRecord::Tell(std::uint32_t client, MemoryObjects::Handle handle, const Told& told) {
  const auto found = objects_.find({client, handle});
  if (found == objects_.end()) return;
  Slot& slot = slots_[found->second];
  slot.fd = told.fd;
  slot.detail = told.detail;
  std::atomic_signal_fence(std::memory_order_release);
  slot.cls = told.cls;
}

std::vector<const TreeRecord::Slot*> TreeRecord::Sorted(Kind kind) const {
  std::vector<const Slot*> sorted;
  for (const Slot& slot : slots_) {
    if (slot.kind == kind) sorted.push_back(&slot);
  }
  std::ranges::sort(sorted, {}, [](const Slot* slot) { return slot->order; });
  return sorted;
}

std::vector<TreeRecord::Client> TreeRecord::Clients() const {
  std::vector<Client> clients;
  for (const Slot* slot : Sorted(Kind::kClient))
    clients.push_back({.client = slot->client,
                       .process = slot->process,
                       .holder = slot->holder,
                       .fd = slot->fd,
                       .start = slot->start});
  return clients;
}

std::vector<TreeRecord::Object> TreeRecord::Objects() const {
  std::vector<Object> objects;
  for (const Slot* slot : Sorted(Kind::kObject)) {
    objects.push_back({.entry = {.client = slot->client,
                                 .parent = slot->parent,
                                 .handle = slot->handle,
                                 .memory = slot->memory,
                                 .bytes = slot->bytes,
                                 .device = slot->device},
                       .told = {.fd = slot->fd, .cls = slot->cls, .detail = slot->detail}});
  }
  return objects;
}

void TreeRecord::Restore(MemoryObjects& objects) const {
  for (const Client& client : Clients()) objects.SetClient(client.client, client.process);
  for (const Object& object : Objects()) objects.Restore(object.entry);
}

}  // namespace tessera::guard
