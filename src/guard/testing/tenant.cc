#include "guard/testing/tenant.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/seqpacket.h"
#include "guard/supervisor/filter.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

template <typename Struct>
std::int64_t Ask(int file, unsigned number, Struct& argument, char type = 'F') {
  const int result = ioctl(file, _IOC(_IOC_READ | _IOC_WRITE, type, number, sizeof argument), &argument);
  return result < 0 ? -std::int64_t{errno} : std::int64_t{argument.status};
}

}  // namespace

Tenant::Tenant(const std::function<int()>& body) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) abort();
  result_ =
      static_cast<int*>(mmap(nullptr, sizeof *result_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  *result_ = -1;
  pid_ = fork();
  if (pid_ == 0) {
    close(pair[0]);
    UniqueFd listener(InstallFilter().value_or(UniqueFd()));
    std::array<std::byte, 1> byte{};
    SendPacket(pair[1], byte, listener.Get());
    listener.Reset();
    if (ReceivePacket(pair[1], byte) <= 0) _exit(1);
    *result_ = body();
    _exit(0);
  }
  close(pair[1]);
  socket_.Reset(pair[0]);
  std::array<std::byte, 1> byte;
  ReceivePacket(socket_.Get(), byte, &listener_);
}

Tenant::~Tenant() {
  if (pid_ > 0) {
    Kill();
    Wait();
  }
  munmap(result_, sizeof *result_);
}

void Tenant::Go() {
  const std::array<std::byte, 1> byte{};
  SendPacket(socket_.Get(), byte);
}

int Tenant::Wait() {
  int status = 0;
  if (pid_ <= 0 || waitpid(std::exchange(pid_, -1), &status, 0) < 0) return -1;
  return WIFEXITED(status) ? *result_ : -1;
}

void Tenant::Kill() const { kill(pid_, SIGKILL); }

std::int64_t Rm::Alloc(std::uint32_t parent, std::uint32_t* object, std::uint32_t cls, void* params,
                       std::uint32_t params_bytes) const {
  abi::Alloc alloc{.root = client,
                   .parent = parent,
                   .object = *object,
                   .cls = cls,
                   .params = reinterpret_cast<std::uint64_t>(params),
                   .rights = 0,
                   .params_bytes = params_bytes,
                   .flags = 0,
                   .status = 0xffff,
                   .reserved = 0};
  const std::int64_t status = Ask(file, abi::kAlloc, alloc);
  *object = alloc.object;
  return status;
}

std::int64_t Rm::AllocShort(std::uint32_t parent, std::uint32_t* object, std::uint32_t cls, void* params,
                            std::uint32_t params_bytes, char type) const {
  abi::AllocShort alloc{.root = client,
                        .parent = parent,
                        .object = *object,
                        .cls = cls,
                        .params = reinterpret_cast<std::uint64_t>(params),
                        .params_bytes = params_bytes,
                        .status = 0xffff};
  const std::int64_t status = Ask(file, abi::kAlloc, alloc, type);
  *object = alloc.object;
  return status;
}

std::int64_t Rm::Memory(std::uint32_t object, std::uint64_t bytes) const {
  abi::MemoryParams params{};
  params.size = bytes;
  return Alloc(0x80, &object, abi::kMemoryLocal, &params, sizeof params);
}

std::int64_t Rm::Control(std::uint32_t object, std::uint32_t command, void* params, std::uint32_t params_bytes) const {
  abi::Control control{.client = client,
                       .object = object,
                       .command = command,
                       .flags = 0,
                       .params = reinterpret_cast<std::uint64_t>(params),
                       .params_bytes = params_bytes,
                       .status = 0xffff};
  return Ask(file, abi::kControl, control);
}

std::int64_t Rm::Free(std::uint32_t object) const {
  abi::Free free{.root = client, .parent = 0, .object = object, .status = 0xffff};
  return Ask(file, abi::kFree, free);
}

std::int64_t Rm::Dup(std::uint32_t object, std::uint32_t source_client, std::uint32_t source_object) const {
  abi::Dup dup{.client = client,
               .parent = 0x80,
               .object = object,
               .source_client = source_client,
               .source_object = source_object,
               .flags = 0,
               .status = 0xffff};
  return Ask(file, abi::kDup, dup);
}

}  // namespace tessera::guard
