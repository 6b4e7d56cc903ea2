#pragma once

#include <set>
#include <string>

#include "base/process/process_start.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/protocol.h"

namespace tessera::server {

// The files of suspended programs, one for each GPU of a program, in a folder that only the daemon's user may enter.
// Movers write and read them (docs/suspended-file.md); their names tell whose they are, so that the next daemon finds
// them. On the loop's thread, which waits for the disk only where it looks for names.
class SuspendedFiles {
 public:
  // Finds what an earlier daemon left; the folder need not be there. Files of programs that have ended are removed.
  explicit SuspendedFiles(std::string folder);

  // A file of this program to be written; the folder is made if it is missing. One that is there already stays as it is
  // until a mover empties it. Errors as open(2), and EPERM: the folder is another user's, or others may enter it.
  Result<UniqueFd> Make(const ProcessName& program, const wire::Uuid& gpu);
  // The program's file, if a mover has finished one.
  UniqueFd Open(const ProcessName& program, const wire::Uuid& gpu) const;
  // The same for a mover that is to use it. One that is not finished is removed: who wrote it, or emptied it, has
  // ended. One that cannot be read stays, and the log says why.
  UniqueFd Take(const ProcessName& program, const wire::Uuid& gpu);
  void Remove(const ProcessName& program, const wire::Uuid& gpu);
  // Removes the files of programs that have ended.
  void RemoveEnded();
  std::string PathOf(const ProcessName& program, const wire::Uuid& gpu) const;

 private:
  // ENOENT: nothing is known of one; ENODATA: nobody has finished it. Others: it cannot be read now.
  Result<UniqueFd> Finished(const ProcessName& program, const wire::Uuid& gpu) const;

  const std::string folder_;
  std::set<std::string> names_;  // in the folder
};

}  // namespace tessera::server
