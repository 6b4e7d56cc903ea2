#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "face/files/file_tree.h"

struct fuse_pollhandle;

namespace tessera::face {

// A file that a process has open. A read at offset 0 takes a snapshot of the text, and later reads continue in it, as
// in the kernel's own files. Any thread.
class OpenFile {
 public:
  // `tree` is that of who opened it, and stays so whoever reads and writes. `tells`: poll(2) waits until the text
  // differs from what was read last, or from what it was when the file was opened.
  OpenFile(FileTree tree, std::string path, bool tells);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;

  // At most `size` bytes from `offset` on; none at the end. The errno of a file that is gone is ENODEV.
  Result<std::string> Read(std::size_t size, std::uint64_t offset);
  Result<void> Write(std::string_view text);

  // The events of poll(2) now. Takes ownership of `handle`, which may be null, and notifies it once when it waits for
  // an event that comes.
  unsigned Poll(fuse_pollhandle* handle);
  // Notifies the handle that waits, if the text has changed.
  void NotifyIfChanged();
  bool Waits();

 private:
  struct FreeHandle {
    void operator()(fuse_pollhandle* handle) const;
  };

  Result<std::string> Now();
  bool Changed() TESSERA_REQUIRES(mutex_);

  FileTree tree_;
  const std::string path_;
  const bool tells_;
  Mutex mutex_;
  std::string text_ TESSERA_GUARDED_BY(mutex_);  // the snapshot
  std::unique_ptr<fuse_pollhandle, FreeHandle> waiter_ TESSERA_GUARDED_BY(mutex_);
};

// All files that are open. A thread checks those that a poll(2) waits for once a second; it exists only while there are
// any. Any thread.
class OpenFiles {
 public:
  OpenFiles() = default;
  ~OpenFiles() { End(); }

  // Ends all notifications. To be called while the mount still exists.
  void End();

  std::uint64_t Open(FileTree tree, const std::string& path, bool tells);
  std::shared_ptr<OpenFile> Find(std::uint64_t id);  // null if there is no such file
  void Close(std::uint64_t id);
  unsigned Poll(std::uint64_t id, fuse_pollhandle* handle);

 private:
  void Watch();

  Mutex mutex_;
  CondVar changed_;
  std::uint64_t last_id_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::shared_ptr<OpenFile>> open_ TESSERA_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<OpenFile>> waited_ TESSERA_GUARDED_BY(mutex_);  // a poll(2) waits for these
  bool watching_ TESSERA_GUARDED_BY(mutex_) = false;  // watcher_ runs and will look again
  bool ending_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread watcher_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::face
