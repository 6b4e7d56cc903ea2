#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "server/daemon/control.h"

namespace tessera::face {

// The tree of files through which scripts see and steer vGPUs and processes (docs/files.md), without a file system
// under it: FileMount shows it to the kernel. Paths begin with "/". Each call asks Control and waits for the event
// loop; only the names in vgpus/ are cached, until Control says that they changed. Any thread but the loop's, several
// at once. What Control's caller may not see is not there.
//
// An error's code is the errno that the caller's system call fails with; nothing was changed then. ENOENT for paths
// that are not there, which may be so from one call to the next.
class FileTree {
 public:
  explicit FileTree(server::Control control) : control_(std::move(control)) {}
  // The same tree for another caller.
  FileTree For(server::Control control) const;
  const server::Control& Asker() const { return control_; }

  struct Attributes {
    mode_t mode = 0;  // S_IFDIR or S_IFREG, and who could do what if everybody might: 0644, 0444, 0755 or 0555
    uid_t uid = 0;    // the vGPU's owner, the process's user, or the daemon's user
    // Who else may do that, if others than the owner may use the tree at all: everybody, or everybody who only reads.
    enum class Others { kNone, kRead, kAll } others = Others::kNone;
    bool tells = false;  // a change of it can be waited for
  };
  // Asks no device, so it is cheap enough for each component of each path.
  Result<Attributes> Look(std::string_view path);

  // Names, without "." and "..". ENOTDIR for a file. That of processes asks the devices, as a listing by the API does.
  Result<std::vector<std::string>> List(std::string_view path);

  // EISDIR for a directory; ENODATA for a figure that nobody knows.
  Result<std::string> Read(std::string_view path);

  // `text` is one whole value. EINVAL, ERANGE, ENOSPC, EBUSY and so on as the file says; EACCES for what is only read.
  Result<void> Write(std::string_view path, std::string_view text);

  // Makes a vGPU for the caller where its path is in vgpus/, or removes it. EPERM elsewhere.
  Result<void> MakeDirectory(std::string_view path);
  Result<void> RemoveDirectory(std::string_view path);

 private:
  // What callers know of paths in vgpus: operators by the path, users by their number and the path.
  struct Known {
    Mutex mutex;
    std::map<std::string, Attributes, std::less<>> attributes TESSERA_GUARDED_BY(mutex);
    std::uint64_t changes TESSERA_GUARDED_BY(mutex) = 0;  // Control::VGpuChanges when they were looked up
  };
  Result<Attributes> Find(std::string_view path);

  server::Control control_;
  std::shared_ptr<Known> known_ = std::make_shared<Known>();  // of the trees of all callers
};

}  // namespace tessera::face
