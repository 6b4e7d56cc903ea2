#include "pager/chunks/sparse_memory.h"

#include <bit>

#include "pager/chunks/chunk_memory.h"

namespace tessera::pager {

using namespace cuda;
using wire::kUnitBytes;

namespace {

// `count` units from `first` on.
Units Run(std::uint32_t first, std::uint32_t count) {
  return static_cast<Units>(((std::uint64_t{1} << count) - 1) << first);
}

// Takes the lowest unit out of the set.
std::uint32_t Next(Units& units) {
  const auto unit = static_cast<std::uint32_t>(std::countr_zero(units));
  units &= units - 1;
  return unit;
}

}  // namespace

Units SparseMemory::PiecesWithin(Units units) const {
  Units within = 0;
  wire::ForEachPiece(units_, begins_, [&](std::uint32_t first, std::uint32_t count) {
    const Units piece = Run(first, count);
    if ((piece & ~units) == 0) within |= piece;
  });
  return within;
}

Units SparseMemory::PiecesAround(Units units) const {
  Units around = 0;
  wire::ForEachPiece(units_, begins_, [&](std::uint32_t first, std::uint32_t count) {
    const Units piece = Run(first, count);
    if ((piece & units) != 0) around |= piece;
  });
  return around;
}

CUresult SparseMemory::Make(const ChunkMemory& memory, Units more, Units cuts) {
  CUresult result = CUDA_SUCCESS;
  Units made = 0;
  wire::ForEachPiece(more, wire::BeginsOfRuns(more) | (more & cuts), [&](std::uint32_t first, std::uint32_t count) {
    if (result != CUDA_SUCCESS) return;
    result = memory.Make(count * kUnitBytes, &handles_[first]);
    if (result != CUDA_SUCCESS) return;
    made |= Run(first, count);
    begins_ |= Run(first, 1);
  });
  units_ |= made;
  // What lies behind is a piece of its own already: where a piece begins does not change.
  if (result != CUDA_SUCCESS) Release(memory, made);
  return result;
}

void SparseMemory::Release(const ChunkMemory& memory, Units units) {
  for (Units left = begins_ & units; left != 0;) memory.Release(handles_[Next(left)]);
  units_ &= ~units;
  begins_ &= ~units;
}

std::vector<std::pair<Driver::Handle, std::uint64_t>> SparseMemory::Detach(Units units) {
  std::vector<std::pair<Driver::Handle, std::uint64_t>> pieces;
  for (Units left = begins_ & units; left != 0;) {
    const std::uint32_t first = Next(left);
    pieces.emplace_back(handles_[first], wire::LengthOfPiece(units_, begins_, first) * kUnitBytes);
  }
  units_ &= ~units;
  begins_ &= ~units;
  return pieces;
}

CUresult SparseMemory::Map(const ChunkMemory& memory, std::uint64_t address, Units units) const {
  CUresult result = CUDA_SUCCESS;
  Units mapped = 0;
  for (Units left = begins_ & units; left != 0 && result == CUDA_SUCCESS;) {
    const std::uint32_t first = Next(left), count = wire::LengthOfPiece(units_, begins_, first);
    result = memory.Map(address + first * kUnitBytes, count * kUnitBytes, handles_[first]);
    if (result == CUDA_SUCCESS) mapped |= Run(first, count);
  }
  if (result != CUDA_SUCCESS) memory.UnmapUnits(address, mapped);
  return result;
}

CUresult SparseMemory::Export(const ChunkMemory& memory, Units units, std::vector<UniqueFd>* fds) const {
  const std::size_t before = fds->size();
  for (Units left = begins_ & units; left != 0;) {
    int fd = -1;
    const CUresult result = memory.Export(handles_[Next(left)], &fd);
    if (result != CUDA_SUCCESS) {
      fds->resize(before);
      return result;
    }
    fds->emplace_back(fd);
  }
  return CUDA_SUCCESS;
}

}  // namespace tessera::pager
