#pragma once

#include <memory>
#include <string>

#include "server/daemon/control.h"

namespace tessera::face {

// FileTree at <run-dir>/fs, by FUSE. Requests are served by threads of its own; nothing wakes up while nobody asks.
//
// Who may use api.sock may use the files, and nobody else: its mode and group are those of the tree, each file belongs
// to who made the vGPU, and the kernel checks that. Other users than the daemon's get in at all only if root runs it.
class FileMount {
 public:
  // Mounts, in place of what a daemon before this one left there. `control` outlives the mount; its loop need not run
  // yet. The error says why there can be no files here: no /dev/fuse, no right to mount.
  static Result<std::unique_ptr<FileMount>> Start(server::Control& control, const std::string& run_dir);

  // Unmounts, whoever has files open: they get errors from then on. Waits for the requests that are under way; the loop
  // must have ended, so that none of them waits for it.
  ~FileMount();

  const std::string& Path() const;

 private:
  class Impl;
  explicit FileMount(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Takes away what is mounted at `path` by a daemon that is gone, without touching the files: one that hangs would keep
// whoever looks at it. Nothing is mounted there: no error. Of other file systems than ours: EBUSY.
Result<void> RemoveStaleMount(const std::string& path);

}  // namespace tessera::face
