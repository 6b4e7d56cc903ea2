#include "segments.h"

#include <algorithm>
#include <iterator>

namespace tessera::churn {

using namespace cuda;

namespace {

constexpr std::uint64_t kRange = 4ull << 30;
constexpr std::uint64_t kSizes[] = {2 << 20, 20 << 20, 130 << 20};

void Release(CUmemGenericAllocationHandle handle) { Must("cuMemRelease", handle); }

}  // namespace

CUdeviceptr Segments::Reserve() {
  CUdeviceptr address = 0;
  Must("cuMemAddressReserve", &address, std::size_t{kRange}, std::size_t{0}, CUdeviceptr{0}, 0ull);
  return address;
}

CUresult Segments::Map(CUdeviceptr address, const Piece& piece) {
  CUresult result = Call("cuMemMap", address, std::size_t{piece.bytes}, std::size_t{0}, piece.handle, 0ull);
  if (result != CUDA_SUCCESS) return result;
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  result = Call("cuMemSetAccess", address, std::size_t{piece.bytes}, &access, std::size_t{1});
  if (result != CUDA_SUCCESS) Must("cuMemUnmap", address, std::size_t{piece.bytes});
  return result;
}

CUresult Segments::Back(CUdeviceptr address, Piece& piece) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUresult result = Call("cuMemCreate", &piece.handle, std::size_t{piece.bytes},
                         const_cast<const CUmemAllocationProp*>(&properties), 0ull);
  if (result != CUDA_SUCCESS) return result;
  result = Map(address, piece);
  piece.held = result == CUDA_SUCCESS && dice_.OneIn(2);
  if (!piece.held) Release(piece.handle);
  return result;
}

void Segments::Unback(CUdeviceptr address, const Piece& piece) {
  const bool before = dice_.OneIn(2);
  if (piece.held && before) Release(piece.handle);
  Must("cuMemUnmap", address, std::size_t{piece.bytes});
  if (piece.held && !before) Release(piece.handle);
}

// A handle of its own keeps the memory while it is not mapped.
void Segments::Hold(CUdeviceptr address, Piece& piece) {
  if (piece.held) return;
  Must("cuMemRetainAllocationHandle", &piece.handle, reinterpret_cast<void*>(address));
  piece.held = true;
}

CUresult Segments::Make(Buffer& buffer) {
  const std::uint64_t wanted = buffer.bytes;
  buffer.address = Reserve();
  buffer.bytes = 0;
  segments_[buffer.address] = {};
  const CUresult result = Grow(buffer, std::max(wanted, kSizes[0])).result;
  buffer.words.clear();
  if (result != CUDA_SUCCESS) Free(buffer);
  return result;
}

void Segments::Free(Buffer& buffer) {
  gpu_.Synchronize();
  CUdeviceptr at = buffer.address;
  for (const Piece& piece : segments_.extract(buffer.address).mapped()) {
    Unback(at, piece);
    at += piece.bytes;
  }
  Must("cuMemAddressFree", buffer.address, std::size_t{kRange});
}

Segments::Fresh Segments::Change(Buffer& buffer, std::uint64_t most_more) {
  switch (dice_.Number(0, 4)) {
    case 0:
    case 1:
      return Grow(buffer, most_more);
    case 2:
      Shrink(buffer);
      return {};
    case 3:
      return Replace(buffer);
    default:
      Relocate(buffer);
      return {};
  }
}

Segments::Fresh Segments::Grow(Buffer& buffer, std::uint64_t most) {
  Piece piece{.bytes = kSizes[dice_.Number(0, std::size(kSizes) - 1)]};
  if (piece.bytes > most) piece.bytes = kSizes[0];
  if (piece.bytes > most || buffer.bytes + piece.bytes > kRange) return {};
  const CUresult result = Back(buffer.address + buffer.bytes, piece);
  if (result != CUDA_SUCCESS) return {.result = result};
  segments_[buffer.address].push_back(piece);
  buffer.bytes += piece.bytes;
  const std::uint64_t first = buffer.words.size();
  buffer.words.resize(buffer.bytes / buffer.stride);
  return {.first = first, .count = buffer.words.size() - first};
}

void Segments::Shrink(Buffer& buffer) {
  Pieces& pieces = segments_[buffer.address];
  if (pieces.size() < 2) return;
  gpu_.Synchronize();
  const Piece piece = pieces.back();
  pieces.pop_back();
  buffer.bytes -= piece.bytes;
  buffer.words.resize(buffer.bytes / buffer.stride);
  Unback(buffer.address + buffer.bytes, piece);
}

// A hole anywhere, which is filled with other memory.
Segments::Fresh Segments::Replace(Buffer& buffer) {
  Pieces& pieces = segments_[buffer.address];
  const auto piece = dice_.Any(pieces);
  std::uint64_t offset = 0;
  for (auto before = pieces.begin(); before != piece; ++before) offset += before->bytes;
  gpu_.Synchronize();
  Unback(buffer.address + offset, *piece);
  const CUresult result = Back(buffer.address + offset, *piece);
  if (result == CUDA_SUCCESS) return {.first = offset / buffer.stride, .count = piece->bytes / buffer.stride};
  // What lies behind a hole that stays cannot be a part of the buffer.
  CUdeviceptr at = buffer.address + offset;
  for (auto behind = std::next(piece); behind != pieces.end(); ++behind) {
    at += std::prev(behind)->bytes;
    Unback(at, *behind);
  }
  pieces.erase(piece, pieces.end());
  buffer.bytes = offset;
  buffer.words.resize(offset / buffer.stride);
  return {.result = result};
}

// All of it is mapped at other addresses, before or after its mappings here end.
void Segments::Relocate(Buffer& buffer) {
  Pieces pieces = segments_[buffer.address];
  const CUdeviceptr there = Reserve(), here = buffer.address;
  const bool at_both = dice_.OneIn(2);
  gpu_.Synchronize();
  std::uint64_t offset = 0;
  for (Piece& piece : pieces) {
    Hold(here + offset, piece);
    if (at_both) Check(Map(there + offset, piece), "a second mapping");
    offset += piece.bytes;
  }
  if (offset > 0) Must("cuMemUnmap", here, std::size_t{offset});
  offset = 0;
  for (const Piece& piece : pieces) {
    if (!at_both) Check(Map(there + offset, piece), "a mapping elsewhere");
    offset += piece.bytes;
  }
  segments_.erase(here);
  Must("cuMemAddressFree", here, std::size_t{kRange});
  buffer.address = there;
  segments_[there] = std::move(pieces);
}

void Segments::MoveTail(Buffer& from, Buffer& to) {
  Pieces& pieces = segments_[from.address];
  if (&from == &to || pieces.size() < 2 || to.bytes + pieces.back().bytes > kRange) return;
  gpu_.Synchronize();
  Piece piece = pieces.back();
  pieces.pop_back();
  from.bytes -= piece.bytes;
  const CUdeviceptr was_at = from.address + from.bytes;
  Hold(was_at, piece);
  Must("cuMemUnmap", was_at, std::size_t{piece.bytes});
  Check(Map(to.address + to.bytes, piece), "a handle that another range had");
  const auto words = from.words.begin() + static_cast<std::ptrdiff_t>(from.bytes / from.stride);
  to.words.insert(to.words.end(), words, from.words.end());
  from.words.erase(words, from.words.end());
  to.bytes += piece.bytes;
  segments_[to.address].push_back(piece);
}

}  // namespace tessera::churn
