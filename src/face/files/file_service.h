#pragma once

#include <sys/stat.h>

#include <ctime>

#include "face/files/file_tree.h"
#include "face/files/open_file.h"

struct fuse_operations;

namespace tessera::face {

// Who may do with the files what their modes let their owners do: also these others.
struct FileAccess {
  gid_t gid = 0;
  bool group = false, others = false;

  // As it is with a socket. Its owner alone, where it cannot be looked at.
  static FileAccess Of(const std::string& socket);
};

// What answers the kernel's requests about the tree. Any thread.
struct FileService {
  FileTree tree;
  FileAccess access;
  OpenFiles files{tree};
  time_t started = time(nullptr);  // of all files
};

// For fuse_new, whose private data is a FileService.
const fuse_operations& FileOperations();

}  // namespace tessera::face
