#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "server/daemon/control.h"

namespace tessera::face {

// The tree of files through which scripts see and steer vGPUs and processes (docs/files.md), without a file system
// under it: FileMount shows it to the kernel. Paths begin with "/". Each call asks Control and waits for the event
// loop; only the names in vgpus/ are cached, until Control says that they changed. Any thread but the loop's, several
// at once.
//
// An error's code is the errno that the caller's system call fails with; nothing was changed then. ENOENT for paths
// that are not there, which may be so from one call to the next.
class FileTree {
 public:
  // `control` outlives the tree.
  explicit FileTree(server::Control& control) : control_(control) {}

  struct Attributes {
    mode_t mode = 0;     // S_IFDIR or S_IFREG, and who could do what if everybody might: 0644, 0444, 0755 or 0555
    uid_t uid = 0;       // of who made the vGPU; the daemon's where there is none
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

  // Makes a vGPU for `uid` where its path is in vgpus/, or removes it. EPERM elsewhere.
  Result<void> MakeDirectory(std::string_view path, uid_t uid);
  Result<void> RemoveDirectory(std::string_view path);

 private:
  Result<Attributes> Find(std::string_view path);

  server::Control& control_;
  Mutex known_mutex_;
  // Attributes of paths in vgpus, and Control::VGpuChanges when they were looked up.
  std::map<std::string, Attributes, std::less<>> known_ TESSERA_GUARDED_BY(known_mutex_);
  std::uint64_t known_changes_ TESSERA_GUARDED_BY(known_mutex_) = 0;
};

}  // namespace tessera::face
