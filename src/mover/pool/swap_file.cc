#include "mover/pool/swap_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "wire/line.h"

namespace tessera::mover {

using wire::kChunkBytes;

namespace {

// Bytes that are copied at a time between host memory and the file. A file system cannot reach the driver's memory by
// itself, as O_DIRECT requires, so the bytes go through memory of our own.
constexpr std::size_t kPiece = 4u << 20;

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Freed>;

Buffer MakeBuffer() { return Buffer(static_cast<std::byte*>(std::aligned_alloc(4096, kPiece))); }

off_t OffsetOf(Place place) { return static_cast<off_t>(place * kChunkBytes); }

}  // namespace

Result<SwapFile> SwapFile::Open(UniqueFd file, UniqueFd table) {
  struct stat status{};
  if (fstat(file.Get(), &status) != 0) return FailErrno("look at the swap file");
  auto opened = KeyTable::Open(std::move(table), static_cast<std::size_t>(status.st_size) / kChunkBytes);
  if (!opened) return std::unexpected(opened.error());
  return SwapFile(std::move(file), std::move(*opened));
}

SwapFile::SwapFile(UniqueFd file, KeyTable table) : file_(std::move(file)), table_(std::move(table)) {
  for (Place place = static_cast<Place>(table_.size()); place-- > 0;)
    table_[place].key == 0 ? free_.push_back(place) : table_.Leave(place);
}

std::optional<Place> SwapFile::Take(pid_t owner) {
  if (free_.empty()) Sweep();
  if (free_.empty() || !table_.Use(free_.back(), owner)) return {};
  const Place place = free_.back();
  free_.pop_back();
  return place;
}

void SwapFile::GiveBack(Place place) {
  table_.Clear(place);
  free_.push_back(place);
}

bool SwapFile::Sweep() {
  const auto ended = table_.Sweep(0).ended;
  for (const Place place : ended) GiveBack(place);
  return !ended.empty();
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
