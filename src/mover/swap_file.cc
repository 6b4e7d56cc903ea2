#include "mover/swap_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "wire/line.h"

namespace tessera::mover {

using wire::kChunkBytes;

namespace {

// What is copied at a time between host memory and the file. The driver's memory is none that a file system could reach
// by itself, as O_DIRECT would have it, so it goes through memory of our own.
constexpr std::size_t kPiece = 4u << 20;

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Freed>;

Buffer MakeBuffer() { return Buffer(static_cast<std::byte*>(std::aligned_alloc(4096, kPiece))); }

// One that nobody has waited for yet has ended all the same.
bool HasEnded(pid_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t name = text.rfind(')');
  return name != std::string::npos && name + 2 < text.size() && (text[name + 2] == 'Z' || text[name + 2] == 'X');
}

off_t OffsetOf(Place place) { return static_cast<off_t>(place * kChunkBytes); }

}  // namespace

Result<SwapFile> SwapFile::Open(UniqueFd file, UniqueFd table) {
  struct stat of_file{}, of_table{};
  if (fstat(file.Get(), &of_file) != 0 || fstat(table.Get(), &of_table) != 0) return FailErrno("look at the swap file");
  const std::size_t places = std::min<std::size_t>(static_cast<std::size_t>(of_file.st_size) / kChunkBytes,
                                                   static_cast<std::size_t>(of_table.st_size) / sizeof(Entry));
  if (places == 0) return Fail(EINVAL, "the swap file has no place for a chunk");
  void* mapped = mmap(nullptr, places * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_SHARED, table.Get(), 0);
  if (mapped == MAP_FAILED) return FailErrno("map the table of the swap file");
  return SwapFile(std::move(file), std::span(static_cast<Entry*>(mapped), places));
}

SwapFile::SwapFile(UniqueFd file, std::span<Entry> entries) : file_(std::move(file)), entries_(entries) {
  for (Place place = static_cast<Place>(entries_.size()); place-- > 0;) {
    if (entries_[place].key == 0) {
      free_.push_back(place);
    } else {
      left_.insert(place);
    }
  }
}

SwapFile::SwapFile(SwapFile&& other) noexcept
    : file_(std::move(other.file_)),
      entries_(std::exchange(other.entries_, {})),
      free_(std::move(other.free_)),
      left_(std::move(other.left_)) {}

SwapFile::~SwapFile() {
  if (!entries_.empty()) munmap(entries_.data(), entries_.size_bytes());
}

std::optional<Place> SwapFile::Take(pid_t owner) {
  if (free_.empty()) Sweep();
  if (free_.empty()) return {};
  std::uint64_t key = 0;
  while (key == 0) {
    if (getrandom(&key, sizeof key, 0) != sizeof key) return {};
  }
  const Place place = free_.back();
  free_.pop_back();
  entries_[place] = {.key = key, .owner = static_cast<std::uint64_t>(owner)};
  return place;
}

void SwapFile::GiveBack(Place place) {
  left_.erase(place);
  entries_[place] = {};
  free_.push_back(place);
}

std::optional<Place> SwapFile::Claim(std::uint64_t key, pid_t owner) {
  if (key == 0) return {};
  const auto found = std::ranges::find_if(left_, [&](Place place) { return entries_[place].key == key; });
  if (found == left_.end()) return {};
  const Place place = *found;
  left_.erase(found);
  entries_[place].owner = static_cast<std::uint64_t>(owner);
  return place;
}

bool SwapFile::Sweep() {
  const std::size_t before = left_.size();
  std::set<std::uint64_t> living;
  for (const Place place : std::vector<Place>(left_.begin(), left_.end())) {
    const std::uint64_t owner = entries_[place].owner;
    if (living.contains(owner)) continue;
    if (HasEnded(static_cast<pid_t>(owner))) {
      GiveBack(place);
    } else {
      living.insert(owner);
    }
  }
  return left_.size() < before;
}

Result<void> SwapFile::Write(Place place, std::span<const std::byte> bytes) const {
  const Buffer buffer = MakeBuffer();
  if (!buffer) return Fail(ENOMEM, "write to the swap file: no memory");
  for (std::size_t done = 0; done < bytes.size(); done += kPiece) {
    std::memcpy(buffer.get(), bytes.data() + done, kPiece);
    for (std::size_t part = 0; part < kPiece;) {
      const ssize_t wrote =
          pwrite(file_.Get(), buffer.get() + part, kPiece - part, OffsetOf(place) + static_cast<off_t>(done + part));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return FailErrno("write to the swap file");
      if (wrote == 0) return Fail(EIO, "write to the swap file: it takes nothing");
      part += static_cast<std::size_t>(wrote);
    }
  }
  return {};
}

Result<void> SwapFile::Read(Place place, std::span<std::byte> bytes) const {
  const Buffer buffer = MakeBuffer();
  if (!buffer) return Fail(ENOMEM, "read the swap file: no memory");
  for (std::size_t done = 0; done < bytes.size(); done += kPiece) {
    for (std::size_t part = 0; part < kPiece;) {
      const ssize_t read =
          pread(file_.Get(), buffer.get() + part, kPiece - part, OffsetOf(place) + static_cast<off_t>(done + part));
      if (read < 0 && errno == EINTR) continue;
      if (read < 0) return FailErrno("read the swap file");
      if (read == 0) return Fail(EIO, "read the swap file: it is shorter than it was");
      part += static_cast<std::size_t>(read);
    }
    std::memcpy(bytes.data() + done, buffer.get(), kPiece);
  }
  return {};
}

}  // namespace tessera::mover
