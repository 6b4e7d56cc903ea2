#include "face/files/file_mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdlib>
#include <mutex>
#include <thread>

#define FUSE_USE_VERSION 314
#include <fuse.h>
#include <fuse_lowlevel.h>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "face/files/file_service.h"
#include "server/record/log.h"

namespace tessera::face {
namespace {

// Some may wait, for the state file for example, while the others serve requests that need not.
constexpr int kFileThreads = 5;  // writes to memory.limit, which wait until memory has moved, keep three at most

Mutex said_mutex;
std::string said TESSERA_GUARDED_BY(said_mutex);  // by libfuse, last: one line

void NoteMessage(fuse_log_level, const char* format, va_list arguments) {
  char text[256];
  vsnprintf(text, sizeof text, format, arguments);
  std::string line = text;
  while (line.ends_with('\n')) line.pop_back();
  server::log::Debug("{}", line);
  const MutexLock lock(said_mutex);
  said = std::move(line);
}

std::string LastMessage() {
  const MutexLock lock(said_mutex);
  return said;
}

// The path as mountinfo has it: absolute and without links.
Result<std::string> RealPath(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (!real) return FailErrno("cannot look at " + path);
  std::string text = real;
  free(real);
  return text;
}

}  // namespace

// Uses libfuse's high-level interface, which has paths as the tree does; the low-level one has inodes, and would need
// lasting numbers for things that come and go. libfuse's own loops do not end while a client keeps a file open and the
// daemon may not force the kernel, so threads of this class wait for the kernel and for the end.
class FileMount::Impl {
 public:
  Impl(server::Control& control, const std::string& run_dir, std::string path)
      : path(std::move(path)), service_{.tree = FileTree(control), .access = FileAccess::Of(run_dir + "/api.sock")} {}
  Impl(const Impl&) = delete;
  ~Impl();
  Result<void> Mount();

  const std::string path;

 private:
  void Serve();

  FileService service_;
  bool made_directory_ = false, mounted_ = false;
  fuse* fuse_ = nullptr;
  const UniqueFd stop_fd_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable from the end on
  std::array<std::thread, kFileThreads> threads_;
};

Result<void> FileMount::Impl::Mount() {
  if (!stop_fd_) return FailErrno("cannot make an eventfd");
  if (access("/dev/fuse", R_OK | W_OK) != 0)
    return FailErrno("cannot open /dev/fuse", "load the module fuse, or give the container /dev/fuse");
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("cannot make " + path);
  made_directory_ = true;
  fuse_set_log_func(NoteMessage);
  // The kernel lets other users in only as the tree's modes say, and only if root mounts it.
  const std::string options =
      std::string("default_permissions,fsname=tesserad,subtype=tessera") + (geteuid() == 0 ? ",allow_other" : "");
  const char* arguments[] = {"tesserad", "-o", options.c_str()};
  fuse_args args = FUSE_ARGS_INIT(3, const_cast<char**>(arguments));
  fuse_ = fuse_new(&args, &FileOperations(), sizeof(fuse_operations), &service_);
  fuse_opt_free_args(&args);  // what it left of them is its own copy
  if (!fuse_) return Fail(EINVAL, "libfuse does not start: " + LastMessage());
  if (fuse_mount(fuse_, path.c_str()) != 0) {
    const std::string why = LastMessage();  // empty: fusermount3 has written to stderr itself
    return Fail(EPERM, fmt::format("cannot mount {}{}{}", path, why.empty() ? "" : ": ", why),
                geteuid() == 0 ? "a container needs the right to mount (CAP_SYS_ADMIN)" : "install fuse3");
  }
  mounted_ = true;
  const int kernel = fuse_session_fd(fuse_get_session(fuse_));
  if (fcntl(kernel, F_SETFL, fcntl(kernel, F_GETFL) | O_NONBLOCK) != 0) return FailErrno("cannot set up " + path);
  for (std::thread& thread : threads_) thread = std::thread([this] { Serve(); });
  return {};
}

void FileMount::Impl::Serve() {
  fuse_session* session = fuse_get_session(fuse_);
  fuse_buf buffer{};
  // Each request wakes one thread.
  const UniqueFd sources(epoll_create1(EPOLL_CLOEXEC));
  epoll_event stop{.events = EPOLLIN, .data = {.fd = stop_fd_.Get()}};
  epoll_event request{.events = EPOLLIN | EPOLLEXCLUSIVE, .data = {.fd = fuse_session_fd(session)}};
  if (epoll_ctl(sources.Get(), EPOLL_CTL_ADD, stop.data.fd, &stop) != 0 ||
      epoll_ctl(sources.Get(), EPOLL_CTL_ADD, request.data.fd, &request) != 0) {
    server::log::Warn("cannot serve the files: {}", FailErrno("epoll_ctl").error().message);
    return;
  }
  while (!fuse_session_exited(session)) {
    epoll_event ready;
    const int count = epoll_wait(sources.Get(), &ready, 1, -1);
    if (count < 0 && errno != EINTR) break;
    if (count > 0 && ready.data.fd == stop_fd_.Get()) break;
    const int received = fuse_session_receive_buf(session, &buffer);
    if (received == -EINTR || received == -EAGAIN) continue;  // the other thread was faster
    if (received <= 0) break;                                 // it was unmounted from outside
    fuse_session_process_buf(session, &buffer);
  }
  free(buffer.mem);
}

// fuse_unmount closes the descriptor, which ends the requests that clients wait for and the files that they have open.
FileMount::Impl::~Impl() {
  eventfd_write(stop_fd_.Get(), 1);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  service_.files.End();
  if (mounted_) fuse_unmount(fuse_);
  if (fuse_) fuse_destroy(fuse_);
  if (made_directory_) rmdir(path.c_str());
}

FileMount::FileMount(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

FileMount::~FileMount() = default;

const std::string& FileMount::Path() const { return impl_->path; }

Result<std::unique_ptr<FileMount>> FileMount::Start(server::Control& control, const std::string& run_dir) {
  auto real = RealPath(run_dir);
  if (!real) return std::unexpected(real.error());
  const std::string path = *real + "/fs";
  if (auto removed = RemoveStaleMount(path); !removed) return std::unexpected(removed.error());
  auto impl = std::make_unique<Impl>(control, run_dir, path);
  if (auto mounted = impl->Mount(); !mounted) return std::unexpected(mounted.error());
  return std::unique_ptr<FileMount>(new FileMount(std::move(impl)));
}

}  // namespace tessera::face
