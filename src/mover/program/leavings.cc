#include "mover/program/leavings.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

using wire::LineType;

LinePacket Leavings::TakeWhole(LinePacket& offer) {
  LinePacket whole = {.message = {.type = offer.message.type}, .fds = {}};
  LinePacket rest = {.message = {.type = offer.message.type}, .fds = {}};
  std::size_t next = 0;
  for (std::uint32_t n = 0; n < offer.message.count; ++n) {
    LinePacket& to = IsWhole(offer.message, n) ? whole : rest;
    to.message.chunk[to.message.count] = offer.message.chunk[n];
    to.message.key[to.message.count] = offer.message.key[n];
    to.message.units[to.message.count] = offer.message.units[n];
    to.message.begins[to.message.count++] = offer.message.begins[n];
    if (IsAsShown(offer.message, n)) {
      to.fds.emplace_back();
      continue;
    }
    for (std::uint32_t piece = 0; piece < PiecesOf(offer.message, n); ++piece)
      to.fds.push_back(std::move(offer.fds[next++]));
  }
  offer = std::move(rest);
  return whole;
}

std::shared_ptr<Batch> Leavings::Leave(LinePacket packet) {
  auto batch = std::make_shared<Batch>();
  std::vector<std::uint64_t> stay;
  for (std::uint32_t n = 0; n < packet.message.count; ++n) {
    const bool shown = IsAsShown(packet.message, n);
    const auto entry = Leave(packet.message.chunk[n], {.units = packet.message.units[n]}, std::move(packet.fds[n]));
    entry ? batch->entries.push_back(*entry) : stay.push_back(packet.message.chunk[n]);
    batch->not_kept += entry && !shown ? 1 : 0;
  }
  PassFault("mover.left.told");
  if (!stay.empty()) line_.Say(LineType::kKeep, stay);
  return batch->entries.empty() ? nullptr : batch;
}

// A slot with the chunk's memory: one that was shown, if there is no descriptor. None: it stays the program's.
std::optional<Batch::Entry> Leavings::Leave(std::uint64_t chunk, ChunkPart part, UniqueFd fd) {
  if (!fd) {
    const auto slot = shown_.Take(chunk);
    return slot ? std::optional(Batch::Entry{.chunk = chunk, .slot = *slot, .part = part}) : std::nullopt;
  }
  const auto slot = context_.LeaveSlot(std::move(fd));
  if (slot) return Batch::Entry{.chunk = chunk, .slot = *slot, .part = part};
  if (slot.error().code == EMFILE) task_.error = EMFILE;
  return {};
}

std::shared_ptr<Batch> Leavings::OnKept(std::span<const std::shared_ptr<Batch>> batches, std::uint64_t number,
                                        int error) {
  Pool& pool = context_.place.pool;
  const auto is = [&](const Batch::Entry& entry) { return pool.EntryOf(entry.slot).memory == number; };
  const auto found = std::ranges::find_if(
      batches, [&](const auto& batch) { return batch->not_kept > 0 && std::ranges::any_of(batch->entries, is); });
  if (found == batches.end()) return nullptr;
  Batch& batch = **found;
  --batch.not_kept;
  if (error != 0) {
    const auto entry = std::ranges::find_if(batch.entries, is);
    pool.GiveBack(entry->slot);
    line_.Say(LineType::kKeep, std::span(&entry->chunk, 1));
    task_.left += entry->part.Taken();
    task_.error = error;
    batch.entries.erase(entry);
  }
  return batch.not_kept > 0 ? nullptr : *found;
}

void Leavings::GiveBack(std::vector<std::shared_ptr<Batch>>& batches) {
  std::erase_if(batches, [this](const auto& batch) {
    if (batch->not_kept == 0) return false;
    for (const Batch::Entry& entry : batch->entries) context_.place.pool.GiveBack(entry.slot);
    return true;
  });
}

}  // namespace tessera::mover
