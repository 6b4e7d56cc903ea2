#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/protocol.h"

namespace tessera::server {

// GPU memory that programs export to others (CUDA's IPC handles): its descriptors, for as long as the exporter says, or
// is connected. A program that was given some keeps it by itself. Runs on the loop's thread.
class Exports {
 public:
  struct Entry {
    std::uint64_t session = 0;  // of the exporter
    uid_t uid = 0;
    std::uint32_t gpu = 0;
    wire::Export terms;
    std::vector<UniqueFd> chunks;  // so far; terms.chunks of them when all have come
  };

  // `most`: descriptors that are kept, half of them for one user.
  explicit Exports(std::size_t most) : most_(most) {}

  // Takes the descriptors of some chunks: the first ones, or those that follow on what came before. EINVAL: what is
  // said cannot be; EEXIST: somebody else has that key; ENOSPC: there are too many; then what had come of it is gone.
  Result<void> Add(std::uint64_t session, uid_t uid, std::uint32_t gpu, const wire::Export& part,
                   std::span<UniqueFd> fds);
  // The memory that was exported under the key, for a program of `uid`. ENOENT: none, or not all of it yet; EACCES:
  // another user's.
  Result<const Entry*> Find(const wire::ExportKey& key, uid_t uid) const;
  // Nothing if it is not the session's.
  void Remove(std::uint64_t session, const wire::ExportKey& key);
  void RemoveAllOf(std::uint64_t session);

  // Bytes that the session exports of a GPU.
  std::uint64_t BytesOf(std::uint64_t session, std::uint32_t gpu) const {
    const auto found = bytes_.find({session, gpu});
    return found == bytes_.end() ? 0 : found->second;
  }
  std::size_t Descriptors() const { return descriptors_; }

 private:
  using Map = std::map<wire::ExportKey, Entry>;
  Result<void> Check(const Entry& entry, const wire::Export& part, std::size_t fds) const;
  Map::iterator Erase(Map::iterator at);

  const std::size_t most_;
  std::size_t descriptors_ = 0;
  std::map<uid_t, std::size_t> per_user_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> bytes_;  // by session and GPU
  Map entries_;
};

}  // namespace tessera::server
