#pragma once

#include <sys/stat.h>

#include <ctime>

#include "face/files/file_tree.h"
#include "face/files/open_file.h"

struct fuse_operations;

namespace tessera::face {

// Users beside a file's owner who may use the tree: operators by their group, and others, for what is theirs.
struct FileAccess {
  gid_t gid = 0;
  bool group = false, others = false;

  // Those who may use a socket. The owner alone if the socket cannot be examined.
  static FileAccess Of(const std::string& socket);
};

// The state behind the kernel's requests about the tree. Any thread.
struct FileService {
  FileTree tree;
  FileAccess access;
  OpenFiles files;
  time_t started = time(nullptr);  // of all files
};

// For fuse_new, whose private data is a FileService.
const fuse_operations& FileOperations();

}  // namespace tessera::face
