#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "face/files/file_tree.h"

struct fuse_pollhandle;

namespace tessera::face {

// A file that somebody has open. What is read from its begin on is one snapshot, however many reads it takes, and a
// read at the begin takes a new one, as of the kernel's own files. Any thread.
class OpenFile {
 public:
  // `tells`: poll(2) waits until the text is another than what was read last, or than at the opening.
  OpenFile(FileTree& tree, std::string path, bool tells);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;

  // At most `size` bytes from `offset` on; none at the end. The errno of a file that is gone is ENODEV.
  Result<std::string> Read(std::size_t size, std::uint64_t offset);
  Result<void> Write(std::string_view text);

  // The events of poll(2) now. `handle`, which may be null, belongs to this from now on; where it waits for an event,
  // it is told of it once.
  unsigned Poll(fuse_pollhandle* handle);
  // Tells whoever waits if the text has changed.
  void NotifyIfChanged();
  bool Waits();

 private:
  struct FreeHandle {
    void operator()(fuse_pollhandle* handle) const;
  };

  Result<std::string> Now();
  bool Changed();

  FileTree& tree_;
  const std::string path_;
  const bool tells_;
  std::mutex mutex_;
  std::string text_;                                     // the snapshot; guarded by mutex_
  std::unique_ptr<fuse_pollhandle, FreeHandle> waiter_;  // guarded by mutex_
};

// All files that are open. Whether one that is waited for has changed is looked at once a second, by a thread that is
// there only while somebody waits. Any thread.
class OpenFiles {
 public:
  explicit OpenFiles(FileTree& tree) : tree_(tree) {}
  ~OpenFiles() { End(); }

  // Nobody who waits is told any more; while there still is a mount.
  void End();

  std::uint64_t Open(const std::string& path, bool tells);
  std::shared_ptr<OpenFile> Find(std::uint64_t id);  // null if there is no such file
  void Close(std::uint64_t id);
  unsigned Poll(std::uint64_t id, fuse_pollhandle* handle);

 private:
  void Watch();

  FileTree& tree_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_id_ = 0;                                  // guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<OpenFile>> open_;    // guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<OpenFile>> waited_;  // guarded by mutex_: somebody waits for a change
  bool watching_ = false;                                      // guarded by mutex_: watcher_ runs, and will look again
  bool ending_ = false;                                        // guarded by mutex_
  std::thread watcher_;                                        // guarded by mutex_
};

}  // namespace tessera::face
