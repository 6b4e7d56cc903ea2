#include "server/swap/swap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/size.h"
#include "server/swap/chunks.h"
#include "wire/swap_table.h"

namespace tessera::server {
namespace {

UniqueFd OpenUnnamed(const std::string& path, int flags) {
  const std::string folder = std::filesystem::path(path).parent_path();
  UniqueFd file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600));
  if (file || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  file.Reset(open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC | flags, 0600));
  if (file && unlink(path.c_str()) != 0) file.Reset();
  return file;
}

}  // namespace

UniqueFd OutOfTheWay(UniqueFd fd) {
  constexpr int kLeast = 10;
  return UniqueFd(fcntl(fd.Get(), F_DUPFD_CLOEXEC, kLeast));
}

Result<SwapFile> MakeSwapFile(const std::string& path, std::uint64_t bytes) {
  bytes = DownToChunks(bytes);
  // Past the page cache: what goes there is not wanted in RAM. Some file systems have no such way.
  UniqueFd file = OpenUnnamed(path, O_DIRECT);
  if (!file && errno == EINVAL) file = OpenUnnamed(path, 0);
  if (!file)
    return FailErrno("make the swap file " + path,
                     "swap.file names a file in a folder that is there and can be written");
  // Asked beforehand: some file systems fill the disk first, and say no then.
  struct statvfs space{};
  const bool fits = fstatvfs(file.Get(), &space) != 0 || bytes / space.f_frsize <= space.f_bavail;
  const int failed = !fits ? ENOSPC : fallocate(file.Get(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (failed == ENOSPC)
    return Fail(ENOSPC, "the swap file " + path + " of " + FormatSize(bytes) + " does not fit on its disk",
                "lower swap.file_size");
  if (failed == EOPNOTSUPP)
    return Fail(EOPNOTSUPP, "the file system of " + path + " cannot reserve space", "use another one for swap.file");
  if (failed != 0) return Fail(failed, "reserve " + FormatSize(bytes) + " for the swap file " + path);

  UniqueFd table(memfd_create("tessera-swap-table", MFD_CLOEXEC));
  const auto entries = static_cast<off_t>(bytes / wire::kChunkBytes * wire::kTableEntryBytes);
  if (!table || ftruncate(table.Get(), entries) != 0) return FailErrno("make the table of the swap file");
  return SwapFile{.file = OutOfTheWay(std::move(file)), .table = OutOfTheWay(std::move(table)), .bytes = bytes};
}

}  // namespace tessera::server
