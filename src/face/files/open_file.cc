#include "face/files/open_file.h"

#include <poll.h>
#include <pthread.h>

#include <chrono>

#define FUSE_USE_VERSION 314
#include <fuse.h>

#include "server/record/log.h"

namespace tessera::face {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
// As in the kernel's own files that support poll(2): reading and writing are always possible, and these mark an event.
constexpr unsigned kAlways = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM, kEvent = POLLPRI | POLLERR;

}  // namespace

// ---- OpenFile ----

void OpenFile::FreeHandle::operator()(fuse_pollhandle* handle) const { fuse_pollhandle_destroy(handle); }

OpenFile::OpenFile(FileTree tree, std::string path, bool tells)
    : tree_(std::move(tree)), path_(std::move(path)), tells_(tells) {
  if (!tells_) return;
  if (auto text = tree_.Read(path_)) text_ = std::move(*text);
}

OpenFile::~OpenFile() = default;

// The path was there when the file was opened.
Result<std::string> OpenFile::Now() {
  auto text = tree_.Read(path_);
  if (!text && text.error().code == ENOENT) text.error().code = ENODEV;
  return text;
}

Result<std::string> OpenFile::Read(std::size_t size, std::uint64_t offset) {
  const MutexLock lock(mutex_);
  if (offset == 0) {
    auto text = Now();
    if (!text) return text;
    text_ = std::move(*text);
  }
  return offset < text_.size() ? text_.substr(offset, size) : std::string();
}

Result<void> OpenFile::Write(std::string_view text) {
  auto written = tree_.Write(path_, text);
  if (!written && written.error().code == ENOENT) written.error().code = ENODEV;
  if (!written) server::log::Debug("a write to {} is refused: {}", path_, written.error().Text());
  return written;
}

// A file that is gone counts as changed: a poll(2) on it would never end.
bool OpenFile::Changed() {
  const auto text = Now();
  return !text || *text != text_;
}

unsigned OpenFile::Poll(fuse_pollhandle* handle) {
  std::unique_ptr<fuse_pollhandle, FreeHandle> waiter(handle);
  if (!tells_) return kAlways;
  const MutexLock lock(mutex_);
  if (Changed()) return kAlways | kEvent;
  if (waiter) waiter_ = std::move(waiter);
  return kAlways;
}

void OpenFile::NotifyIfChanged() {
  const MutexLock lock(mutex_);
  if (!waiter_ || !Changed()) return;
  fuse_notify_poll(waiter_.get());
  waiter_.reset();
}

bool OpenFile::Waits() {
  const MutexLock lock(mutex_);
  return waiter_ != nullptr;
}

// ---- OpenFiles ----

void OpenFiles::End() {
  std::thread watcher;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    watcher = std::move(watcher_);
  }
  changed_.NotifyAll();
  if (watcher.joinable()) watcher.join();
}

std::uint64_t OpenFiles::Open(FileTree tree, const std::string& path, bool tells) {
  auto file = std::make_shared<OpenFile>(std::move(tree), path, tells);
  const MutexLock lock(mutex_);
  open_[++last_id_] = std::move(file);
  return last_id_;
}

std::shared_ptr<OpenFile> OpenFiles::Find(std::uint64_t id) {
  const MutexLock lock(mutex_);
  const auto found = open_.find(id);
  return found == open_.end() ? nullptr : found->second;
}

void OpenFiles::Close(std::uint64_t id) {
  const MutexLock lock(mutex_);
  open_.erase(id);
  waited_.erase(id);
}

unsigned OpenFiles::Poll(std::uint64_t id, fuse_pollhandle* handle) {
  const auto file = Find(id);
  if (!file) return POLLERR;
  const unsigned events = file->Poll(handle);
  if (!file->Waits()) return events;
  const MutexLock lock(mutex_);
  if (ending_ || !open_.contains(id)) return events;
  waited_[id] = file;
  if (watching_) return events;
  if (watcher_.joinable()) watcher_.join();  // it has cleared watching_, so it ends
  watching_ = true;
  watcher_ = std::thread([this] { Watch(); });
  return events;
}

void OpenFiles::Watch() {
  pthread_setname_np(pthread_self(), "files-watch");
  MutexLock lock(mutex_);
  while (!ending_ && !waited_.empty()) {
    const auto next = std::chrono::steady_clock::now() + kLookEvery;
    while (!ending_ && changed_.WaitUntil(mutex_, next)) {
    }
    if (ending_) break;
    const auto waited = waited_;
    lock.Unlock();
    for (const auto& [id, file] : waited) file->NotifyIfChanged();
    lock.Lock();
    // A client that was notified may have polled again already.
    std::erase_if(waited_, [](const auto& entry) { return !entry.second->Waits(); });
  }
  watching_ = false;
}

}  // namespace tessera::face
