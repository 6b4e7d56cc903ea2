#pragma once

#include <memory>
#include <string>

#include "server/daemon/control.h"

namespace tessera::face {

// The mount of FileTree at <run-dir>/fs, by FUSE. Threads of its own serve requests, and sleep while there are none.
//
// Exactly the users of api.sock may use the files: the tree has the socket's mode and group, and each file belongs to
// the vGPU's owner or the process's user. The kernel checks this, and the authority decides as for the API: what a user
// may not see is not there. Users other than the daemon's have access only if root runs it.
class FileMount {
 public:
  // Mounts the tree, and removes a mount that an earlier daemon left. `control` outlives the mount; its loop need not
  // run yet. Errors: no /dev/fuse, no right to mount.
  static Result<std::unique_ptr<FileMount>> Start(server::Control& control, const std::string& run_dir);

  // Unmounts even while files are open: their users get errors from then on. Waits for requests that are under way; the
  // loop must have ended, so that none of them waits for it.
  ~FileMount();

  const std::string& Path() const;

 private:
  class Impl;
  explicit FileMount(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Unmounts what a daemon that is gone has mounted at `path`. Does not touch the files: a daemon that hangs would block
// the caller. No error if nothing is mounted there; EBUSY for other file systems than ours.
Result<void> RemoveStaleMount(const std::string& path);

}  // namespace tessera::face
