// Watches this process make and free the resource manager's objects that lead to its channels. The driver's library
// calls ioctl(2), and because the shim is preloaded, it calls the one here. The daemon needs the handles to steer the
// channels.
#include "shim/session/objects.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/fork_mutex.h"
#include "channel/rm/ioctl_event.h"

namespace tessera::shim {
namespace {

constexpr auto kMade = static_cast<std::uint32_t>(channel::ObjectEvent::Kind::kAlloc);
constexpr auto kFreed = static_cast<std::uint32_t>(channel::ObjectEvent::Kind::kFree);

// The objects that exist now, for a daemon that comes later.
struct Table {
  ForkMutex mutex;
  std::vector<wire::Object> objects TESSERA_GUARDED_BY(mutex);
  // The last duplicates of other clients' objects. Most are memory; the daemon hears of those in which a channel is
  // made.
  std::deque<wire::Object> duplicates TESSERA_GUARDED_BY(mutex);
  bool missed TESSERA_GUARDED_BY(mutex) = false;  // a message about one of them could not be sent

  static Table& Instance() {
    static auto* table = new Table;  // any thread may call ioctl at any time, before main and at exit, too
    return *table;
  }
};

void TellAll(Table& table, Session& session) TESSERA_REQUIRES(table.mutex) {
  table.missed = false;
  for (const wire::Object& object : table.objects) table.missed |= !session.Tell(wire::Make(object));
}

void Tell(Table& table, const wire::Object& object) TESSERA_REQUIRES(table.mutex) {
  Session& session = Session::Instance();
  if (!session.Managed()) return;
  if (table.missed) TellAll(table, session);
  table.missed |= !session.Tell(wire::Make(object));
}

void Add(Table& table, const wire::Object& object) TESSERA_REQUIRES(table.mutex) {
  table.objects.push_back(object);
  Tell(table, object);
}

void ObjectMade(const wire::Object& object) {
  constexpr std::size_t kMostDuplicates = 64;  // between that of a group and its first channel there are few
  Table& table = Table::Instance();
  const MutexLock lock(table.mutex);
  if (object.cls == channel::abi::kDuplicate) {
    if (table.duplicates.size() == kMostDuplicates) table.duplicates.pop_front();
    table.duplicates.push_back(object);
    return;
  }
  const auto group = std::ranges::find_if(table.duplicates, [&](const wire::Object& each) {
    return each.client == object.client && each.object == object.parent;
  });
  if (group != table.duplicates.end() && channel::abi::IsChannel(object.cls)) {
    wire::Object borrowed = *group;
    borrowed.cls = channel::abi::kBorrowedGroup;
    borrowed.detail = channel::abi::kEngineGraphics;
    table.duplicates.erase(group);
    Add(table, borrowed);
  }
  Add(table, object);
}

// Freeing an object also frees all that was made under it. The driver's library also frees 0, which is no object: 0 is
// the parent of a client.
void Freed(std::uint32_t client, std::uint32_t handle) {
  if (handle == 0) return;
  Table& table = Table::Instance();
  const MutexLock lock(table.mutex);
  std::erase_if(table.duplicates, [&](const wire::Object& each) {
    return each.client == client && (client == handle || each.object == handle || each.parent == handle);
  });
  auto& objects = table.objects;
  const std::size_t before = objects.size();
  std::vector<std::uint32_t> gone{handle};
  for (std::size_t i = 0; i < gone.size(); ++i) {
    std::erase_if(objects, [&](const wire::Object& object) {
      const bool goes =
          object.client == client && (client == handle || object.object == gone[i] || object.parent == gone[i]);
      if (goes && object.object != gone[i]) gone.push_back(object.object);
      return goes;
    });
  }
  if (objects.size() != before) Tell(table, {.kind = kFreed, .client = client, .object = handle});
}

}  // namespace

void NoteObject(const channel::ObjectEvent& event) {
  if (event.kind == channel::ObjectEvent::Kind::kFree) return Freed(event.client, event.object);
  ObjectMade({.kind = kMade,
              .fd = event.fd,
              .client = event.client,
              .parent = event.parent,
              .object = event.object,
              .cls = event.cls,
              .detail = event.detail});
}

void TellObjects(Session& session) {
  Table& table = Table::Instance();
  const MutexLock lock(table.mutex);
  TellAll(table, session);
}

}  // namespace tessera::shim

// Every program's ioctl passes here: one compare for what is not the resource manager's.
extern "C" [[gnu::visibility("default")]] int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const long result = syscall(SYS_ioctl, fd, request, argument);
  using namespace tessera;
  if (result == 0 && _IOC_TYPE(request) == channel::abi::kIoctlType) {
    const int before = errno;
    if (const auto event = channel::EventOfIoctl(fd, request, argument)) shim::NoteObject(*event);
    errno = before;
  }
  return static_cast<int>(result);
}
