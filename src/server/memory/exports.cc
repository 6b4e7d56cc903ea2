#include "server/memory/exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/seqpacket.h"

namespace tessera::server {
namespace {

// A terabyte in chunks of 2 MiB: more is nonsense.
constexpr std::uint32_t kMostChunks = 1u << 19;
constexpr std::uint64_t kMostChunkBytes = 1ull << 40;

bool Possible(const wire::Export& terms) {
  if (terms.chunks == 0 || terms.chunks > kMostChunks || terms.bytes == 0) return false;
  if (terms.chunk_bytes == 0 || terms.chunk_bytes > kMostChunkBytes || terms.offset >= terms.chunk_bytes) return false;
  return terms.bytes <= terms.chunks * terms.chunk_bytes - terms.offset;
}

bool Same(const wire::Export& a, const wire::Export& b) {
  return a.bytes == b.bytes && a.offset == b.offset && a.chunk_bytes == b.chunk_bytes && a.chunks == b.chunks;
}

}  // namespace

Result<void> Exports::Check(const Entry& entry, const wire::Export& part, std::size_t fds) const {
  // Some of the descriptors are lost where this process may have no more.
  const bool all = fds == std::min<std::size_t>(wire::kMostExported, part.chunks - entry.chunks.size());
  if (part.first != entry.chunks.size() || !Same(part, entry.terms) || !all || fds == 0)
    return Fail(EINVAL, "memory for an IPC handle did not come with all of its file descriptors",
                "raise LimitNOFILE of tesserad, or start the program with TESSERA_SWAP=0");
  const auto user = per_user_.find(entry.uid);
  if (descriptors_ + fds > most_ || (user != per_user_.end() ? user->second : 0) + fds > most_ / 2)
    return Fail(ENOSPC,
                fmt::format("programs export more memory by IPC handles than the daemon has file descriptors "
                            "for: one for 64 MiB, {} in all, half of them for a user",
                            most_),
                "raise LimitNOFILE of tesserad, or start the program with TESSERA_SWAP=0");
  return {};
}

Result<void> Exports::Add(std::uint64_t session, uid_t uid, std::uint32_t gpu, const wire::Export& part,
                          std::span<UniqueFd> fds) {
  if (!Possible(part)) return Fail(EINVAL, "memory of an impossible size was exported");
  auto at = entries_.find(part.key);
  if (at != entries_.end() && at->second.session != session) return Fail(EEXIST, "another program has that IPC handle");
  if (at == entries_.end()) {
    at = entries_.emplace(part.key, Entry{.session = session, .uid = uid, .gpu = gpu, .terms = part, .chunks = {}})
             .first;
    bytes_[{session, gpu}] += part.bytes;
  }
  Entry& entry = at->second;
  if (auto checked = Check(entry, part, fds.size()); !checked) {
    Erase(at);
    return checked;
  }
  for (UniqueFd& fd : fds) entry.chunks.push_back(std::move(fd));
  descriptors_ += fds.size();
  per_user_[uid] += fds.size();
  return {};
}

Result<const Exports::Entry*> Exports::Find(const wire::ExportKey& key, uid_t uid) const {
  const auto at = entries_.find(key);
  if (at == entries_.end() || at->second.chunks.size() != at->second.terms.chunks)
    return Fail(ENOENT, "there is no memory of this IPC handle",
                "was it freed, has its program ended, or does it run under another daemon?");
  if (at->second.uid != uid) return Fail(EACCES, "the memory of this IPC handle belongs to another user's program");
  return &at->second;
}

Exports::Map::iterator Exports::Erase(Map::iterator at) {
  const std::size_t count = at->second.chunks.size();
  for (UniqueFd& chunk : at->second.chunks) CloseDevice(std::move(chunk));
  descriptors_ -= count;
  const auto user = per_user_.find(at->second.uid);
  if (user != per_user_.end() && (user->second -= count) == 0) per_user_.erase(user);
  const auto bytes = bytes_.find({at->second.session, at->second.gpu});
  if ((bytes->second -= at->second.terms.bytes) == 0) bytes_.erase(bytes);
  return entries_.erase(at);
}

void Exports::Remove(std::uint64_t session, const wire::ExportKey& key) {
  const auto at = entries_.find(key);
  if (at != entries_.end() && at->second.session == session) Erase(at);
}

void Exports::RemoveAllOf(std::uint64_t session) {
  for (auto at = entries_.begin(); at != entries_.end();)
    at = at->second.session == session ? Erase(at) : std::next(at);
}

}  // namespace tessera::server
