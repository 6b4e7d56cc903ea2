#include "mover/pool/key_table.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace tessera::mover {
namespace {

// A zombie has ended, too, unless only its first thread has ended and others live.
bool HasEnded(pid_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t name = text.rfind(')');
  if (name == std::string::npos) return false;
  std::istringstream fields(text.substr(name + 1));
  std::string state, skipped;
  fields >> state;
  for (int i = 4; i < 20; ++i) fields >> skipped;
  int threads = 0;  // field 20, as proc_pid_stat(5) counts
  fields >> threads;
  return (state == "Z" || state == "X") && threads <= 1;
}

// Keeps the compiler from reordering stores: the mover may be killed between any two of them.
void InThisOrder() { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace

std::uint64_t RandomNumber() {
  std::uint64_t number = 0;
  while (number == 0) {
    if (getrandom(&number, sizeof number, 0) != sizeof number) return 0;
  }
  return number;
}

Result<KeyTable> KeyTable::Open(UniqueFd table, std::size_t most) {
  struct stat status{};
  if (fstat(table.Get(), &status) != 0) return FailErrno("look at a table of the swap pool");
  const std::size_t count = std::min(most, static_cast<std::size_t>(status.st_size) / sizeof(Entry));
  if (count == 0) return Fail(EINVAL, "a table of the swap pool has no place for a chunk");
  void* mapped = mmap(nullptr, count * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_SHARED, table.Get(), 0);
  if (mapped == MAP_FAILED) return FailErrno("map a table of the swap pool");
  return KeyTable(std::span(static_cast<Entry*>(mapped), count));
}

KeyTable::KeyTable(KeyTable&& other) noexcept
    : entries_(std::exchange(other.entries_, {})), left_(std::move(other.left_)) {}

KeyTable::~KeyTable() {
  if (!entries_.empty()) munmap(entries_.data(), entries_.size_bytes());
}

bool KeyTable::IsUsed(Place place) const { return entries_[place].key != 0 && !HasEnded(entries_[place].owner); }

// At no time does the entry say of one memory what is true of the other.
void KeyTable::Reset(Place place, std::uint64_t memory) {
  Entry& entry = entries_[place];
  entry.memory = 0;
  InThisOrder();
  entry = {};
  InThisOrder();
  entry.memory = memory;
  left_.erase(place);
}

void KeyTable::Set(Place place, const Entry& entry) {
  Entry& own = entries_[place];
  own.memory = 0;
  InThisOrder();
  own = entry;
  own.memory = 0;
  InThisOrder();
  own.memory = entry.memory;
  Leave(place);
}

void KeyTable::MarkGiven(Place place, std::uint64_t domain) {
  Entry& entry = entries_[place];
  entry.domain = domain;
  InThisOrder();
  entry.marks |= Entry::kGiven;
}

bool KeyTable::Use(Place place, pid_t owner) {
  Entry& entry = entries_[place];
  entry.owner = owner;
  entry.marks &= ~Entry::kParked;
  InThisOrder();
  entry.key = RandomNumber();
  return entry.key != 0;
}

void KeyTable::UseParked(Place place, pid_t owner, std::uint64_t key) {
  Entry& entry = entries_[place];
  entry.owner = owner;
  entry.marks |= Entry::kParked;
  InThisOrder();
  entry.key = key;
}

void KeyTable::Park(Place place, bool parked) {
  Entry& entry = entries_[place];
  entry.marks = parked ? entry.marks | Entry::kParked : entry.marks & ~Entry::kParked;
  InThisOrder();
}

void KeyTable::Clear(Place place) {
  entries_[place].key = 0;
  InThisOrder();
  entries_[place].marks &= ~Entry::kParked;
  left_.erase(place);
}

void KeyTable::Bound(Nanos until) {
  for (auto& [place, end] : left_) end = std::min(end, until);
}

std::optional<Place> KeyTable::Claim(std::uint64_t key, pid_t owner, std::optional<std::uint64_t> domain) {
  if (key == 0) return {};
  const auto found = std::ranges::find_if(left_, [&](const auto& each) { return entries_[each.first].key == key; });
  if (found == left_.end()) return {};
  Entry& entry = entries_[found->first];
  if (domain && (!entry.Has(Entry::kGiven) || entry.domain != *domain)) return {};
  entry.owner = owner;
  const Place place = found->first;
  left_.erase(found);
  return place;
}

std::vector<Place> KeyTable::Abandon(pid_t owner) {
  std::vector<Place> abandoned;
  std::erase_if(left_, [&](const auto& each) {
    if (entries_[each.first].owner != owner) return false;
    abandoned.push_back(each.first);
    return true;
  });
  return abandoned;
}

std::optional<Place> KeyTable::LetGo(std::uint64_t memory) {
  const auto found = std::ranges::find_if(left_, [&](const auto& each) {
    return entries_[each.first].memory == memory && entries_[each.first].Has(Entry::kShared);
  });
  if (found == left_.end()) return {};
  const Place place = found->first;
  left_.erase(found);
  return place;
}

KeyTable::Unclaimed KeyTable::Sweep(Nanos now) {
  Unclaimed unclaimed;
  std::set<pid_t> living;
  for (const auto& [place, until] : left_) {
    const pid_t owner = entries_[place].owner;
    if (!living.contains(owner) && HasEnded(owner)) {
      unclaimed.ended.push_back(place);
      continue;
    }
    living.insert(owner);
    if (now >= until && !entries_[place].Has(Entry::kParked)) unclaimed.late.push_back(place);
  }
  for (const Place place : unclaimed.ended) left_.erase(place);
  for (const Place place : unclaimed.late) left_.erase(place);
  return unclaimed;
}

}  // namespace tessera::mover
